// A shuffle of channels moves after a depthwise convolution and a bias, whose weights are permuted instead.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<1x6x5x5xf32>, %1: tensor<6x1x3x3xf32>, %2: tensor<1x6x1x1xf32>):
    %3 = graphcore.reshape %0 {shape = [1, 2, 3, 5, 5]} : (tensor<1x6x5x5xf32>) -> tensor<1x2x3x5x5xf32>
    %4 = graphcore.transpose %3 {perm = [0, 2, 1, 3, 4]} : (tensor<1x2x3x5x5xf32>) -> tensor<1x3x2x5x5xf32>
    %5 = graphcore.reshape %4 {shape = [1, 6, 5, 5]} : (tensor<1x3x2x5x5xf32>) -> tensor<1x6x5x5xf32>
    %6 = graphcore.conv %5, %1 {strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 6} : (tensor<1x6x5x5xf32>, tensor<6x1x3x3xf32>) -> tensor<1x6x5x5xf32>
    %7 = graphcore.add %2, %6 : (tensor<1x6x1x1xf32>, tensor<1x6x5x5xf32>) -> tensor<1x6x5x5xf32>
    pg.return [#pg.bytes<"v0">], %7 : tensor<1x6x5x5xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<1x6x5x5xf32>, %1: tensor<6x1x3x3xf32>, %2: tensor<1x6x1x1xf32>):
    %3 = graphcore.reshape %1 {shape = [3, 2, 1, 3, 3]} : (tensor<6x1x3x3xf32>) -> tensor<3x2x1x3x3xf32>
    %4 = graphcore.transpose %3 {perm = [1, 0, 2, 3, 4]} : (tensor<3x2x1x3x3xf32>) -> tensor<2x3x1x3x3xf32>
    %5 = graphcore.reshape %4 {shape = [6, 1, 3, 3]} : (tensor<2x3x1x3x3xf32>) -> tensor<6x1x3x3xf32>
    %6 = graphcore.conv %0, %5 {strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 6} : (tensor<1x6x5x5xf32>, tensor<6x1x3x3xf32>) -> tensor<1x6x5x5xf32>
    %7 = graphcore.reshape %2 {shape = [1, 3, 2, 1, 1]} : (tensor<1x6x1x1xf32>) -> tensor<1x3x2x1x1xf32>
    %8 = graphcore.transpose %7 {perm = [0, 2, 1, 3, 4]} : (tensor<1x3x2x1x1xf32>) -> tensor<1x2x3x1x1xf32>
    %9 = graphcore.reshape %8 {shape = [1, 6, 1, 1]} : (tensor<1x2x3x1x1xf32>) -> tensor<1x6x1x1xf32>
    %10 = graphcore.add %9, %6 : (tensor<1x6x1x1xf32>, tensor<1x6x5x5xf32>) -> tensor<1x6x5x5xf32>
    %11 = graphcore.reshape %10 {shape = [1, 2, 3, 5, 5]} : (tensor<1x6x5x5xf32>) -> tensor<1x2x3x5x5xf32>
    %12 = graphcore.transpose %11 {perm = [0, 2, 1, 3, 4]} : (tensor<1x2x3x5x5xf32>) -> tensor<1x3x2x5x5xf32>
    %13 = graphcore.reshape %12 {shape = [1, 6, 5, 5]} : (tensor<1x3x2x5x5xf32>) -> tensor<1x6x5x5xf32>
    pg.return [#pg.bytes<"v0">], %13 : tensor<1x6x5x5xf32>
  }
}
