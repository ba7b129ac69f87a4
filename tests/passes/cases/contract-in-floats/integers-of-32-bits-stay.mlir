// A matmul of 32-bit integers stays: floats are not exact.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x8xi32>, %1: tensor<8x3xi32>):
    %2 = graphcore.mat_mul %0, %1 : (tensor<2x8xi32>, tensor<8x3xi32>) -> tensor<2x3xi32>
    pg.return [#pg.bytes<"y">], %2 : tensor<2x3xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x8xi32>, %1: tensor<8x3xi32>):
    %2 = graphcore.mat_mul %0, %1 : (tensor<2x8xi32>, tensor<8x3xi32>) -> tensor<2x3xi32>
    pg.return [#pg.bytes<"y">], %2 : tensor<2x3xi32>
  }
}
