// With very few output channels, sums run along input channels: these are last in weights, too.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d2 + d5), (d3 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x8x4x4xf32>):
    %0 = pg.constant #pg.data<seed 1 : tensor<2x8x2x3xf32>>
    %1 = tile.map ins(%x : tensor<1x8x4x4xf32>) domain [1, 8, 4, 4] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] {
    ^bb0(%2: f32):
      %3 = arith.addf %2, %2 : f32
      tile.yield %3 : f32
    } -> tensor<1x8x4x4xf32>
    %4 = tile.reduce ins(%1, %0 : tensor<1x8x4x4xf32>, tensor<2x8x2x3xf32>) domain [1, 2, 3, 2, 8, 2, 3] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<1x2x3x2xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<1x2x3x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x8x4x4xf32>):
    %0 = pg.constant #pg.data<seed 1 : tensor<2x8x2x3xf32>>
    %1 = tile.map ins(%x : tensor<1x8x4x4xf32>) domain [1, 4, 4, 8] maps [affine_map<(d0, d1, d2, d3) -> (d0, d3, d1, d2)>] {
    ^bb0(%2: f32):
      %3 = arith.addf %2, %2 : f32
      tile.yield %3 : f32
    } -> tensor<1x4x4x8xf32>
    %4 = tile.map ins(%0 : tensor<2x8x2x3xf32>) domain [2, 2, 3, 8] maps [affine_map<(d0, d1, d2, d3) -> (d0, d3, d1, d2)>] {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<2x2x3x8xf32>
    %6 = tile.reduce ins(%1, %4 : tensor<1x4x4x8xf32>, tensor<2x2x3x8xf32>) domain [1, 3, 2, 2, 2, 3, 8] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<1x3x2x2xf32>
    %8 = tile.map ins(%6 : tensor<1x3x2x2xf32>) domain [1, 2, 3, 2] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%9: f32):
      tile.yield %9 : f32
    } -> tensor<1x2x3x2xf32>
    pg.return [#pg.bytes<"y">], %8 : tensor<1x2x3x2xf32>
  }
}
