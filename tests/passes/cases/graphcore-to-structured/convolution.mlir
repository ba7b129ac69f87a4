// A convolution is an assembled (padded) input and one contraction with sliding-window maps.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x2x4x4xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<3x2x3x3xf32>>
    %2 = graphcore.conv %0, %1 {strides = [2, 2], dilations = [1, 1], pads = [1, 1, 1, 1], groups = 1} : (tensor<1x2x4x4xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x2x2xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<1x3x2x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, ((d2 * 2) + d5), ((d3 * 2) + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x2x4x4xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<3x2x3x3xf32>>
    %2 = tile.assemble(%0 : tensor<1x2x4x4xf32>) offsets [0, 0, 1, 1] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x2x5x5xf32>
    %3 = tile.reduce ins(%2, %1 : tensor<1x2x5x5xf32>, tensor<3x2x3x3xf32>) domain [1, 3, 2, 2, 2, 3, 3] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x3x2x2xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<1x3x2x2xf32>
  }
}
