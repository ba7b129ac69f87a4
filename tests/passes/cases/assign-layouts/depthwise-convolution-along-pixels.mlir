// A depthwise convolution without neighbours keeps its channels first: vectors run along pixels. The
// caller's image is copied, and the copy gets a halo.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (0, d1, (d3 + d6), (d4 + d7))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1, 0, d6, d7)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x8x12x16xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x1x3x3xf32>>
    %0 = tile.assemble(%x : tensor<1x8x12x16xf32>) offsets [0, 0, 1, 1] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x8x14x18xf32>
    %1 = tile.reduce ins(%0, %w : tensor<1x8x14x18xf32>, tensor<8x1x3x3xf32>) domain [1, 8, 1, 12, 16, 1, 3, 3] parallel 5 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%2: f32):
      tile.yield %2 : f32
    } -> tensor<1x8x1x12x16xf32>
    %y = tile.view %1 : tensor<1x8x1x12x16xf32> -> tensor<1x8x12x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x8x12x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (0, d1, (d3 + d6), (d4 + d7))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1, 0, d6, d7)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x8x12x16xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x1x3x3xf32>>
    %0 = tile.map ins(%x : tensor<1x8x12x16xf32>) domain [1, 8, 12, 16] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<1x8x12x16xf32>
    %2 = tile.assemble(%0 : tensor<1x8x12x16xf32>) offsets [0, 0, 1, 1] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x8x14x18xf32>
    %3 = tile.reduce ins(%2, %w : tensor<1x8x14x18xf32>, tensor<8x1x3x3xf32>) domain [1, 8, 1, 12, 16, 1, 3, 3] parallel 5 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x8x1x12x16xf32>
    %y = tile.view %3 : tensor<1x8x1x12x16xf32> -> tensor<1x8x12x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x8x12x16xf32>
  }
}
