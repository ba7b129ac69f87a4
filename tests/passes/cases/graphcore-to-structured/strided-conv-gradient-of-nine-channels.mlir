// With nine channels and stride 2, even elements read two taps of the kernel, and odd ones read one.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%dy: tensor<1x2x3xf32>, %w: tensor<2x9x3xf32>):
    %dx = graphcore.conv_input_grad %dy, %w {shape = [1, 9, 7], strides = [2], dilations = [1], pads = [0, 0], groups = 1} : (tensor<1x2x3xf32>, tensor<2x9x3xf32>) -> tensor<1x9x7xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x9x7xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, (d2 + d4))>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d1, ((d4 * -2) + 2))>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, ((d2 + d4) + 1))>
#map3 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d1, ((d4 * -2) + 1))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%dy: tensor<1x2x3xf32>, %w: tensor<2x9x3xf32>):
    %0 = tile.assemble(%dy : tensor<1x2x3xf32>) offsets [0, 0, 1] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x2x5xf32>
    %1 = tile.reduce ins(%0, %w : tensor<1x2x5xf32>, tensor<2x9x3xf32>) domain [1, 9, 4, 2, 2] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%2: f32):
      tile.yield %2 : f32
    } -> tensor<1x9x4xf32>
    %3 = tile.reduce ins(%0, %w : tensor<1x2x5xf32>, tensor<2x9x3xf32>) domain [1, 9, 3, 2, 1] parallel 3 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x9x3xf32>
    %dx = tile.assemble(%1, %3 : tensor<1x9x4xf32>, tensor<1x9x3xf32>) offsets [0, 0, 0, 0, 0, 1] steps [1, 1, 2, 1, 1, 2] fill 0.000000e+00 : f32 -> tensor<1x9x7xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x9x7xf32>
  }
}
