// A quantized value with one integer reader stays stored as bytes, and all readers load these.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xf32>):
    %1 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %2 = pg.constant #pg.data<"05" : tensor<ui8>>
    %q = graphcore.quantize %0, %1, %2 {to = ui8, low = 0, high = 255} : (tensor<2x8xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x8xui8>
    %d = graphcore.dequantize %q, %1, %2 {to = f32} : (tensor<2x8xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x8xf32>
    %i = graphcore.cast %q {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %d, %i : tensor<2x8xf32>, tensor<2x8xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xf32>):
    %1 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %2 = pg.constant #pg.data<"05" : tensor<ui8>>
    %q = graphcore.quantize %0, %1, %2 {low = 0, high = 255, to = ui8} : (tensor<2x8xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x8xui8>
    %d = graphcore.dequantize %q, %1, %2 {to = f32} : (tensor<2x8xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x8xf32>
    %i = graphcore.cast %q {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %d, %i : tensor<2x8xf32>, tensor<2x8xi32>
  }
}
