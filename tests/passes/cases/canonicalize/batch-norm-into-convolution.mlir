// Batch normalization with known statistics scales the weights of the convolution before it.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x2x3x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f0000803f" : tensor<2x2x1x1xf32>>
    %2 = graphcore.conv %0, %1 {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 1} : (tensor<1x2x3x3xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x3x3xf32>
    %3 = pg.constant #pg.data<"0000004000000040" : tensor<2xf32>>
    %4 = pg.constant #pg.data<"0000803f0000803f" : tensor<2xf32>>
    %5 = pg.constant #pg.data<"0000003f0000003f" : tensor<2xf32>>
    %6 = pg.constant #pg.data<"0000803f0000803f" : tensor<2xf32>>
    %7 = graphcore.batch_norm %2, %3, %4, %5, %6 {epsilon = 9.9999997473787516e-06} : (tensor<1x2x3x3xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x3x3xf32>
    pg.return [#pg.bytes<"v1">], %7 : tensor<1x2x3x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x2x3x3xf32>):
    %1 = pg.constant #pg.data<"0000000000000000acff7f3facffff3f" : tensor<2x2x1x1xf32>>
    %2 = graphcore.conv %0, %1 {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 1} : (tensor<1x2x3x3xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x3x3xf32>
    %3 = pg.constant #pg.data<"5ac5a7365ac5a736" : tensor<1x2x1x1xf32>>
    %4 = graphcore.add %2, %3 : (tensor<1x2x3x3xf32>, tensor<1x2x1x1xf32>) -> tensor<1x2x3x3xf32>
    pg.return [#pg.bytes<"v1">], %4 : tensor<1x2x3x3xf32>
  }
}
