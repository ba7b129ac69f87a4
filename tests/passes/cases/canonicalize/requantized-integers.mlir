// Integers that are dequantized, moved and quantized again with the same scales are moved as integers.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xui8>):
    %1 = pg.constant #pg.data<"0000004000004040" : tensor<2x1xf32>>
    %2 = pg.constant #pg.data<"0506" : tensor<2x1xui8>>
    %3 = pg.constant #pg.data<"0000004000004040" : tensor<1x2xf32>>
    %4 = pg.constant #pg.data<"0506" : tensor<1x2xui8>>
    %5 = graphcore.dequantize %0, %1, %2 {to = f32} : (tensor<2x8xui8>, tensor<2x1xf32>, tensor<2x1xui8>) -> tensor<2x8xf32>
    %6 = graphcore.transpose %5 {perm = [1, 0]} : (tensor<2x8xf32>) -> tensor<8x2xf32>
    %7 = graphcore.quantize %6, %3, %4 {to = ui8, low = 0, high = 255} : (tensor<8x2xf32>, tensor<1x2xf32>, tensor<1x2xui8>) -> tensor<8x2xui8>
    pg.return [#pg.bytes<"y">], %7 : tensor<8x2xui8>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xui8>):
    %1 = graphcore.transpose %0 {perm = [1, 0]} : (tensor<2x8xui8>) -> tensor<8x2xui8>
    pg.return [#pg.bytes<"y">], %1 : tensor<8x2xui8>
  }
}
