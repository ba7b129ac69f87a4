// A 3x3 convolution of 16 channels stays f32, because Winograd's transforms save more. Its weight gradient is rounded.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<4x16x6x6xf32>, %dy: tensor<4x16x6x6xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<16x16x3x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 1} : (tensor<4x16x6x6xf32>, tensor<16x16x3x3xf32>) -> tensor<4x16x6x6xf32>
    %dw = graphcore.conv_weight_grad %x,
        %dy {shape = [16, 16, 3, 3], strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 1} : (tensor<4x16x6x6xf32>, tensor<4x16x6x6xf32>) -> tensor<16x16x3x3xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"dw">], %y, %dw : tensor<4x16x6x6xf32>, tensor<16x16x3x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<4x16x6x6xf32>, %dy: tensor<4x16x6x6xf32>):
    %0 = graphcore.cast %dy {to = bf16} : (tensor<4x16x6x6xf32>) -> tensor<4x16x6x6xbf16>
    %1 = graphcore.cast %x {to = bf16} : (tensor<4x16x6x6xf32>) -> tensor<4x16x6x6xbf16>
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<16x16x3x3xf32>>
    %y = graphcore.conv %x, %w {strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 1} : (tensor<4x16x6x6xf32>, tensor<16x16x3x3xf32>) -> tensor<4x16x6x6xf32>
    %2 = graphcore.cast %1 {to = f32} : (tensor<4x16x6x6xbf16>) -> tensor<4x16x6x6xf32>
    %3 = graphcore.cast %0 {to = f32} : (tensor<4x16x6x6xbf16>) -> tensor<4x16x6x6xf32>
    %dw = graphcore.conv_weight_grad %2,
        %3 {shape = [16, 16, 3, 3], strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 1} : (tensor<4x16x6x6xf32>, tensor<4x16x6x6xf32>) -> tensor<16x16x3x3xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"dw">], %y, %dw : tensor<4x16x6x6xf32>, tensor<16x16x3x3xf32>
  }
}
