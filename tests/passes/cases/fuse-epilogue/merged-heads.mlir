// A matmul writes its rows in the order that the reader needs, also with a batch of one.
#map = affine_map<(d0, d1, d2, d3, d4) -> (0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (0, d1, d4, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<1x2x3x4xf32>, %1: tensor<1x2x4x2xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<1x2x3x4xf32>, tensor<1x2x4x2xf32>) domain [1, 2, 3, 2, 4] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<1x2x3x2xf32>
    %4 = tile.map ins(%2 : tensor<1x2x3x2xf32>) domain [1, 3, 2, 2] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d1, d3)>] {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<1x3x2x2xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<1x3x2x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4) -> (0, d2, d1, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (0, d2, d4, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<1x2x3x4xf32>, %1: tensor<1x2x4x2xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<1x2x3x4xf32>, tensor<1x2x4x2xf32>) domain [1, 3, 2, 2, 4] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<1x3x2x2xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<1x3x2x2xf32>
  }
}
