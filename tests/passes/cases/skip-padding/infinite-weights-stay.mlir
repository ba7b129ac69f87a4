// Convolutions with infinite weights stay: zero times infinity is NaN.
// -p skip-padding
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x4xf32>):
    %w = pg.constant #pg.data<"0000803e0000807f0000403f" : tensor<1x1x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1], dilations = [6], pads = [6, 6], groups = 1 : i64} : (tensor<1x1x4xf32>, tensor<1x1x3xf32>) -> tensor<1x1x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x1x4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x4xf32>):
    %w = pg.constant #pg.data<"0000803e0000807f0000403f" : tensor<1x1x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1], dilations = [6], pads = [6, 6], groups = 1} : (tensor<1x1x4xf32>, tensor<1x1x3xf32>) -> tensor<1x1x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x1x4xf32>
  }
}
