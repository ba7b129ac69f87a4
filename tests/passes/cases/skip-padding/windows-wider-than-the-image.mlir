// Of a window that is wider than the image on both sides, the middle tap is left.
// -p skip-padding
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x4x4xf32>):
    %w = pg.constant #pg.data<"0000803e0000003f0000403f0000803f0000a03f0000c03f0000e03f0000004000001040000020400000304000004040000050400000604000007040000080400000884000009040" : tensor<2x1x3x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1, 1], dilations = [6, 6], pads = [6, 6, 6, 6], groups = 1 : i64} : (tensor<1x1x4x4xf32>, tensor<2x1x3x3xf32>) -> tensor<1x2x4x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2x4x4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x4x4xf32>):
    %w = pg.constant #pg.data<"0000803e0000003f0000403f0000803f0000a03f0000c03f0000e03f0000004000001040000020400000304000004040000050400000604000007040000080400000884000009040" : tensor<2x1x3x3xf32>>
    %0 = graphcore.slice %w {starts = [0, 0, 1, 1], sizes = [2, 1, 1, 1], steps = [1, 1, 1, 1]} : (tensor<2x1x3x3xf32>) -> tensor<2x1x1x1xf32>
    %y = graphcore.conv %x, %0 {strides = [1, 1], dilations = [6, 6], pads = [0, 0, 0, 0], groups = 1} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2x4x4xf32>
  }
}
