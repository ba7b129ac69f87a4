// Without vectors, dequantized integers stay integers: they take less memory than floats.
// -p canonicalize{keeps-integers=true}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = pg.constant #pg.data<"0000803e" : tensor<f32>>
    %2 = pg.constant #pg.data<"05" : tensor<ui8>>
    %3 = graphcore.quantize %0, %1, %2 {to = ui8, low = 0, high = 255} : (tensor<2x3xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x3xui8>
    %4 = graphcore.dequantize %3, %1, %2 {to = f32} : (tensor<2x3xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = pg.constant #pg.data<"0000803e" : tensor<f32>>
    %2 = pg.constant #pg.data<"05" : tensor<ui8>>
    %3 = graphcore.quantize %0, %1, %2 {low = 0, high = 255, to = ui8} : (tensor<2x3xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x3xui8>
    %4 = graphcore.dequantize %3, %1, %2 {to = f32} : (tensor<2x3xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x3xf32>
  }
}
