// A product whose reader permutes its axes is computed in that order: the update of the weight is the
// epilogue of its gradient.
#map = affine_map<(d0, d1, d2) -> (d2, d0)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<5x3xf32>, %1: tensor<5x4xf32>, %2: tensor<4x3xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<5x3xf32>, tensor<5x4xf32>) domain [3, 4, 5] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<3x4xf32>
    %5 = tile.map ins(%2, %3 : tensor<4x3xf32>, tensor<3x4xf32>) domain [4, 3] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.constant 1.000000e-01 : f32
      %9 = arith.mulf %7, %8 : f32
      %10 = arith.subf %6, %9 : f32
      tile.yield %10 : f32
    } -> tensor<4x3xf32>
    pg.return [#pg.bytes<"next">], %5 : tensor<4x3xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d2, d1)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d0)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<5x3xf32>, %1: tensor<5x4xf32>, %2: tensor<4x3xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<5x3xf32>, tensor<5x4xf32>) epilogue_inputs(%2 : tensor<4x3xf32>)
        domain [4, 3, 5] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%4: f32, %5: f32):
      %6 = arith.constant 1.000000e-01 : f32
      %7 = arith.mulf %4, %6 : f32
      %8 = arith.subf %5, %7 : f32
      tile.yield %8 : f32
    } -> tensor<4x3xf32>
    pg.return [#pg.bytes<"next">], %3 : tensor<4x3xf32>
  }
}
