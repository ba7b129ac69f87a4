// A matmul of bytes becomes one of floats.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x8xui8>, %1: tensor<8x3xi8>):
    %2 = graphcore.cast %0 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    %3 = graphcore.cast %1 {to = i32} : (tensor<8x3xi8>) -> tensor<8x3xi32>
    %4 = graphcore.mat_mul %2, %3 : (tensor<2x8xi32>, tensor<8x3xi32>) -> tensor<2x3xi32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x3xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x8xui8>, %1: tensor<8x3xi8>):
    %2 = graphcore.cast %0 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    %3 = graphcore.cast %1 {to = i32} : (tensor<8x3xi8>) -> tensor<8x3xi32>
    %4 = graphcore.cast %2 {to = f32} : (tensor<2x8xi32>) -> tensor<2x8xf32>
    %5 = graphcore.cast %3 {to = f32} : (tensor<8x3xi32>) -> tensor<8x3xf32>
    %6 = graphcore.mat_mul %4, %5 : (tensor<2x8xf32>, tensor<8x3xf32>) -> tensor<2x3xf32>
    %7 = graphcore.cast %6 {to = i32} : (tensor<2x3xf32>) -> tensor<2x3xi32>
    pg.return [#pg.bytes<"y">], %7 : tensor<2x3xi32>
  }
}
