// A convolution with few output channels runs along rows of pixels: its channels-last input is transposed.
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d1, d4)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d2 + d5), (d3 + d6))>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x8x4x18xf32>):
    %0 = pg.constant #pg.data<seed 1 : tensor<8x8xf32>>
    %1 = pg.constant #pg.data<seed 2 : tensor<5x8x3x3xf32>>
    %2 = tile.reduce ins(%x, %0 : tensor<1x8x4x18xf32>, tensor<8x8xf32>) domain [1, 8, 4, 18, 8] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<1x8x4x18xf32>
    %4 = tile.reduce ins(%2, %1 : tensor<1x8x4x18xf32>, tensor<5x8x3x3xf32>) domain [1, 5, 2, 16, 8, 3, 3] parallel 4 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<1x5x2x16xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<1x5x2x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d1, d2)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d2 + d5), (d3 + d6))>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x8x4x18xf32>):
    %0 = pg.constant #pg.data<seed 1 : tensor<8x8xf32>>
    %1 = pg.constant #pg.data<seed 2 : tensor<5x8x3x3xf32>>
    %2 = tile.reduce ins(%x, %0 : tensor<1x8x4x18xf32>, tensor<8x8xf32>) domain [1, 4, 18, 8, 8] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<1x4x18x8xf32>
    %4 = tile.map ins(%2 : tensor<1x4x18x8xf32>) domain [1, 8, 4, 18] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<1x8x4x18xf32>
    %6 = tile.reduce ins(%4, %1 : tensor<1x8x4x18xf32>, tensor<5x8x3x3xf32>) domain [1, 5, 2, 16, 8, 3, 3] parallel 4 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<1x5x2x16xf32>
    pg.return [#pg.bytes<"y">], %6 : tensor<1x5x2x16xf32>
  }
}
