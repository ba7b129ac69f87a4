// Sums along the columns of one factor stay: blocks of terms do not have factors of their own.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"s">] {
  ^bb0(%x: tensor<3x16xf32>, %w: tensor<16x4xf32>, %s: tensor<4xf32>):
    %0 = tile.reduce ins(%x, %w : tensor<3x16xf32>, tensor<16x4xf32>) domain [3, 4, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<3x4xf32>
    %y = tile.reduce ins(%0, %s : tensor<3x4xf32>, tensor<4xf32>) domain [3, 4] parallel 1 : i64 maps [#map2, #map3] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%2: f32, %3: f32, %4: f32):
      %5 = arith.mulf %2, %3 : f32
      %6 = arith.addf %4, %5 : f32
      tile.yield %6 : f32
    } epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"s">] {
  ^bb0(%x: tensor<3x16xf32>, %w: tensor<16x4xf32>, %s: tensor<4xf32>):
    %0 = tile.reduce ins(%x, %w : tensor<3x16xf32>, tensor<16x4xf32>) domain [3, 4, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<3x4xf32>
    %y = tile.reduce ins(%0, %s : tensor<3x4xf32>, tensor<4xf32>) domain [3, 4] parallel 1 : i64 maps [#map2, #map3] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%2: f32, %3: f32, %4: f32):
      %5 = arith.mulf %2, %3 : f32
      %6 = arith.addf %4, %5 : f32
      tile.yield %6 : f32
    } epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3xf32>
  }
}
