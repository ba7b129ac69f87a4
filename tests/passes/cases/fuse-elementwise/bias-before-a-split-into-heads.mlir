// The map that adds a bias is not fused into the split into heads: it belongs to the contraction.
#map = affine_map<(d0, d1, d2, d3) -> (0, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<1x3x4xf32>, %1: tensor<4x4xf32>, %2: tensor<4xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<1x3x4xf32>, tensor<4x4xf32>) domain [1, 3, 4, 4] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x3x4xf32>
    %5 = tile.map ins(%3, %2 : tensor<1x3x4xf32>, tensor<4xf32>) domain [1, 3, 4] maps [affine_map<(d0, d1, d2) -> (0, d1, d2)>, affine_map<(d0, d1, d2) -> (d2)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.addf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<1x3x4xf32>
    %9 = tile.view %5 : tensor<1x3x4xf32> -> tensor<1x3x2x2xf32>
    %10 = tile.map ins(%9 : tensor<1x3x2x2xf32>) domain [1, 2, 3, 2] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d1, d3)>] {
    ^bb0(%11: f32):
      tile.yield %11 : f32
    } -> tensor<1x2x3x2xf32>
    pg.return [#pg.bytes<"y">], %10 : tensor<1x2x3x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (0, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<1x3x4xf32>, %1: tensor<4x4xf32>, %2: tensor<4xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<1x3x4xf32>, tensor<4x4xf32>) domain [1, 3, 4, 4] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x3x4xf32>
    %5 = tile.map ins(%3, %2 : tensor<1x3x4xf32>, tensor<4xf32>) domain [1, 3, 4] maps [affine_map<(d0, d1, d2) -> (0, d1, d2)>, affine_map<(d0, d1, d2) -> (d2)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.addf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<1x3x4xf32>
    %9 = tile.map ins(%5 : tensor<1x3x4xf32>) domain [1, 2, 3, 2] maps [affine_map<(d0, d1, d2, d3) -> (0, d2, ((d1 * 2) + d3))>] {
    ^bb0(%10: f32):
      tile.yield %10 : f32
    } -> tensor<1x2x3x2xf32>
    pg.return [#pg.bytes<"y">], %9 : tensor<1x2x3x2xf32>
  }
}
