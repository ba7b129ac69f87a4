// The depth of a 3-D kernel is folded into channels, and every output depth becomes an image.
// -p fold-depth{least-folded-channels=1}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x3x2x2xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<2x1x2x3x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1, 1, 1], dilations = [1, 1, 1], pads = [1, 1, 1, 0, 1, 1], groups = 1 : i64} : (tensor<1x1x3x2x2xf32>, tensor<2x1x2x3x3xf32>) -> tensor<1x2x3x2x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2x3x2x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x3x2x2xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<2x1x2x3x3xf32>>
    %0 = graphcore.transpose %x {perm = [0, 2, 1, 3, 4]} : (tensor<1x1x3x2x2xf32>) -> tensor<1x3x1x2x2xf32>
    %1 = graphcore.pad %0 {low = [0, 1, 0, 0, 0], high = [0, 0, 0, 0, 0], interior = [0, 0, 0, 0, 0], value = 0.000000e+00} : (tensor<1x3x1x2x2xf32>) -> tensor<1x4x1x2x2xf32>
    %2 = graphcore.slice %1 {starts = [0, 0, 0, 0, 0], sizes = [1, 3, 1, 2, 2], steps = [1, 1, 1, 1, 1]} : (tensor<1x4x1x2x2xf32>) -> tensor<1x3x1x2x2xf32>
    %3 = graphcore.slice %1 {starts = [0, 1, 0, 0, 0], sizes = [1, 3, 1, 2, 2], steps = [1, 1, 1, 1, 1]} : (tensor<1x4x1x2x2xf32>) -> tensor<1x3x1x2x2xf32>
    %4 = graphcore.concat %2, %3 {axis = 2} : (tensor<1x3x1x2x2xf32>, tensor<1x3x1x2x2xf32>) -> tensor<1x3x2x2x2xf32>
    %5 = graphcore.reshape %4 {shape = [3, 2, 2, 2]} : (tensor<1x3x2x2x2xf32>) -> tensor<3x2x2x2xf32>
    %6 = graphcore.transpose %w {perm = [0, 2, 1, 3, 4]} : (tensor<2x1x2x3x3xf32>) -> tensor<2x2x1x3x3xf32>
    %7 = graphcore.reshape %6 {shape = [2, 2, 3, 3]} : (tensor<2x2x1x3x3xf32>) -> tensor<2x2x3x3xf32>
    %8 = graphcore.conv %5, %7 {strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 1} : (tensor<3x2x2x2xf32>, tensor<2x2x3x3xf32>) -> tensor<3x2x2x2xf32>
    %9 = graphcore.reshape %8 {shape = [1, 3, 2, 2, 2]} : (tensor<3x2x2x2xf32>) -> tensor<1x3x2x2x2xf32>
    %y = graphcore.transpose %9 {perm = [0, 2, 1, 3, 4]} : (tensor<1x3x2x2x2xf32>) -> tensor<1x2x3x2x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2x3x2x2xf32>
  }
}
