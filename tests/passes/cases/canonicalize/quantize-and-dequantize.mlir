// A value that is quantized and dequantized is rounded without a cast to bytes and back.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xf32>):
    %1 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %2 = pg.constant #pg.data<"05" : tensor<ui8>>
    %q = graphcore.quantize %0, %1, %2 {to = ui8, low = 0, high = 255} : (tensor<2x8xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x8xui8>
    %d = graphcore.dequantize %q, %1, %2 {to = f32} : (tensor<2x8xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x8xf32>
    pg.return [#pg.bytes<"y">], %d : tensor<2x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xf32>):
    %1 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %2 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %3 = graphcore.quantize %0, %1, %2 {low = -5, high = 250, to = f32} : (tensor<2x8xf32>, tensor<f32>, tensor<f32>) -> tensor<2x8xf32>
    %4 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %d = graphcore.dequantize %3, %1, %4 {to = f32} : (tensor<2x8xf32>, tensor<f32>, tensor<f32>) -> tensor<2x8xf32>
    pg.return [#pg.bytes<"y">], %d : tensor<2x8xf32>
  }
}
