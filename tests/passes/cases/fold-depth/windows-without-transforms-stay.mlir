// Windows without a Winograd transform stay, and so do convolutions of few channels.
// -p fold-depth{least-folded-channels=2}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x3x4x4xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<2x1x2x3x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1, 1, 1], dilations = [1, 1, 1], pads = [0, 0, 0, 0, 0, 0], groups = 1 : i64} : (tensor<1x1x3x4x4xf32>, tensor<2x1x2x3x3xf32>) -> tensor<1x2x2x2x2xf32>
    %v = pg.constant #pg.data<seed 2 : tensor<2x2x1x1x2xf32>>
    %z = graphcore.conv %y, %v {strides = [1, 1, 1], dilations = [1, 1, 1], pads = [0, 0, 0, 0, 0, 0], groups = 1 : i64} : (tensor<1x2x2x2x2xf32>, tensor<2x2x1x1x2xf32>) -> tensor<1x2x2x2x1xf32>
    pg.return [#pg.bytes<"z">], %z : tensor<1x2x2x2x1xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x3x4x4xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<2x1x2x3x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1, 1, 1], dilations = [1, 1, 1], pads = [0, 0, 0, 0, 0, 0], groups = 1} : (tensor<1x1x3x4x4xf32>, tensor<2x1x2x3x3xf32>) -> tensor<1x2x2x2x2xf32>
    %v = pg.constant #pg.data<seed 2 : tensor<2x2x1x1x2xf32>>
    %z = graphcore.conv %y, %v {strides = [1, 1, 1], dilations = [1, 1, 1], pads = [0, 0, 0, 0, 0, 0], groups = 1} : (tensor<1x2x2x2x2xf32>, tensor<2x2x1x1x2xf32>) -> tensor<1x2x2x2x1xf32>
    pg.return [#pg.bytes<"z">], %z : tensor<1x2x2x2x1xf32>
  }
}
