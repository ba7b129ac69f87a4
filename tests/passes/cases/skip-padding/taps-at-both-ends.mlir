// Results at either end do not read taps in the padding.
// -p skip-padding{least-piece=2}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x8xf32>):
    %w = pg.constant #pg.data<"0000803e0000003f0000403f" : tensor<1x1x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1], dilations = [3], pads = [3, 3], groups = 1 : i64} : (tensor<1x1x8xf32>, tensor<1x1x3xf32>) -> tensor<1x1x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x1x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x8xf32>):
    %w = pg.constant #pg.data<"0000803e0000003f0000403f" : tensor<1x1x3xf32>>
    %0 = graphcore.slice %x {starts = [0, 0, 0], sizes = [1, 1, 6], steps = [1, 1, 1]} : (tensor<1x1x8xf32>) -> tensor<1x1x6xf32>
    %1 = graphcore.slice %w {starts = [0, 0, 1], sizes = [1, 1, 2], steps = [1, 1, 1]} : (tensor<1x1x3xf32>) -> tensor<1x1x2xf32>
    %2 = graphcore.conv %0, %1 {strides = [1], dilations = [3], pads = [0, 0], groups = 1} : (tensor<1x1x6xf32>, tensor<1x1x2xf32>) -> tensor<1x1x3xf32>
    %3 = graphcore.conv %x, %w {strides = [1], dilations = [3], pads = [0, 0], groups = 1} : (tensor<1x1x8xf32>, tensor<1x1x3xf32>) -> tensor<1x1x2xf32>
    %4 = graphcore.slice %x {starts = [0, 0, 2], sizes = [1, 1, 6], steps = [1, 1, 1]} : (tensor<1x1x8xf32>) -> tensor<1x1x6xf32>
    %5 = graphcore.slice %w {starts = [0, 0, 0], sizes = [1, 1, 2], steps = [1, 1, 1]} : (tensor<1x1x3xf32>) -> tensor<1x1x2xf32>
    %6 = graphcore.conv %4, %5 {strides = [1], dilations = [3], pads = [0, 0], groups = 1} : (tensor<1x1x6xf32>, tensor<1x1x2xf32>) -> tensor<1x1x3xf32>
    %y = graphcore.concat %2, %3, %6 {axis = 2} : (tensor<1x1x3xf32>, tensor<1x1x2xf32>, tensor<1x1x3xf32>) -> tensor<1x1x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x1x8xf32>
  }
}
