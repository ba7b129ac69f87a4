// A contraction reads a shuffled factor in place: loops over sums and groups may be split.
#map = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<12x7xf32>, %1: tensor<2x5x6xf32>):
    %2 = tile.view %0 : tensor<12x7xf32> -> tensor<4x3x7xf32>
    %3 = tile.map ins(%2 : tensor<4x3x7xf32>) domain [3, 4, 7] maps [affine_map<(d0, d1, d2) -> (d1, d0, d2)>] {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<3x4x7xf32>
    %5 = tile.view %3 : tensor<3x4x7xf32> -> tensor<2x6x7xf32>
    %6 = tile.reduce ins(%5, %1 : tensor<2x6x7xf32>, tensor<2x5x6xf32>) domain [2, 5, 7, 6] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<2x5x7xf32>
    pg.return [#pg.bytes<"v0">], %6 : tensor<2x5x7xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> ((((d0 * 6) + d3) mod 4), (((d0 * 6) + d3) floordiv 4), d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<12x7xf32>, %1: tensor<2x5x6xf32>):
    %2 = tile.view %0 : tensor<12x7xf32> -> tensor<4x3x7xf32>
    %3 = tile.reduce ins(%2, %1 : tensor<4x3x7xf32>, tensor<2x5x6xf32>) domain [2, 5, 7, 6] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<2x5x7xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<2x5x7xf32>
  }
}
