// With stride two after a row of padding, no tap reads the only row of the image.
// -p skip-padding
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x1x2xf32>):
    %w = pg.constant #pg.data<"00000040" : tensor<1x1x1x1xf32>>
    %y = graphcore.conv %x, %w {strides = [2, 1], dilations = [1, 1], pads = [1, 0, 0, 0], groups = 1 : i64} : (tensor<1x1x1x2xf32>, tensor<1x1x1x1xf32>) -> tensor<1x1x1x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x1x1x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x1x2xf32>):
    %0 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %y = graphcore.broadcast %0 {shape = [1, 1, 1, 2]} : (tensor<f32>) -> tensor<1x1x1x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x1x1x2xf32>
  }
}
