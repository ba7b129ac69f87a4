// Queries and keys have their channels last, after a matmul by weights; the order of scores stays.
#map = affine_map<(d0, d1, d2) -> (d2, d1)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4x6xf32>):
    %0 = pg.constant #pg.data<seed 1 : tensor<16x4xf32>>
    %1 = tile.reduce ins(%x, %0 : tensor<4x6xf32>, tensor<16x4xf32>) domain [16, 6, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%2: f32):
      tile.yield %2 : f32
    } -> tensor<16x6xf32>
    %3 = tile.view %1 : tensor<16x6xf32> -> tensor<2x8x6xf32>
    %4 = tile.reduce ins(%3, %3 : tensor<2x8x6xf32>, tensor<2x8x6xf32>) domain [2, 6, 6, 8] parallel 3 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<2x6x6xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x6x6xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d2, d0)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d1, d0, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d2, d0, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4x6xf32>):
    %0 = pg.constant #pg.data<seed 1 : tensor<16x4xf32>>
    %1 = tile.reduce ins(%x, %0 : tensor<4x6xf32>, tensor<16x4xf32>) domain [6, 16, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%2: f32):
      tile.yield %2 : f32
    } -> tensor<6x16xf32>
    %3 = tile.view %1 : tensor<6x16xf32> -> tensor<6x2x8xf32>
    %4 = tile.reduce ins(%3, %3 : tensor<6x2x8xf32>, tensor<6x2x8xf32>) domain [2, 6, 6, 8] parallel 3 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<2x6x6xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x6x6xf32>
  }
}
