// dy is padded, so that every element of x reads all windows that cover it.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%dy: tensor<1x2x3xf32>, %w: tensor<2x4x3xf32>):
    %dx = graphcore.conv_input_grad %dy, %w {shape = [1, 4, 5], strides = [1], dilations = [1], pads = [0, 0], groups = 1} : (tensor<1x2x3xf32>, tensor<2x4x3xf32>) -> tensor<1x4x5xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x4x5xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, (d2 + d4))>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d1, ((d4 * -1) + 2))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%dy: tensor<1x2x3xf32>, %w: tensor<2x4x3xf32>):
    %0 = tile.assemble(%dy : tensor<1x2x3xf32>) offsets [0, 0, 2] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x2x7xf32>
    %dx = tile.reduce ins(%0, %w : tensor<1x2x7xf32>, tensor<2x4x3xf32>) domain [1, 4, 5, 2, 3] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<1x4x5xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x4x5xf32>
  }
}
