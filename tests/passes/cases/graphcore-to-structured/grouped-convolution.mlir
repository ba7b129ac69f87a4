// Padding is a separate assembly, groups are a loop, and the contraction has no border cases.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x4x5xf32>, %w: tensor<6x2x3xf32>):
    %y = graphcore.conv %x, %w {strides = [2], dilations = [1], pads = [1, 1], groups = 2} : (tensor<1x4x5xf32>, tensor<6x2x3xf32>) -> tensor<1x6x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x6x3xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d4, ((d3 * 2) + d5))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, d2, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x4x5xf32>, %w: tensor<6x2x3xf32>):
    %0 = tile.assemble(%x : tensor<1x4x5xf32>) offsets [0, 0, 1] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x4x7xf32>
    %1 = tile.view %0 : tensor<1x4x7xf32> -> tensor<1x2x2x7xf32>
    %2 = tile.view %w : tensor<6x2x3xf32> -> tensor<2x3x2x3xf32>
    %3 = tile.reduce ins(%1, %2 : tensor<1x2x2x7xf32>, tensor<2x3x2x3xf32>) domain [1, 2, 3, 3, 2, 3] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x2x3x3xf32>
    %y = tile.view %3 : tensor<1x2x3x3xf32> -> tensor<1x6x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x6x3xf32>
  }
}
