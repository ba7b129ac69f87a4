// Elementwise operations after a contraction become its epilogue, on sums in registers.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<3x4xf32>>
    %2 = tile.reduce ins(%0, %1 : tensor<2x3xf32>, tensor<3x4xf32>) domain [2, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<2x4xf32>
    %4 = pg.constant #pg.data<"00000000000000000000003f0000803f" : tensor<4xf32>>
    %5 = tile.map ins(%2, %4 : tensor<2x4xf32>, tensor<4xf32>) domain [2, 4] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.addf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<2x4xf32>
    %9 = tile.map ins(%5 : tensor<2x4xf32>) domain [2, 4] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%10: f32):
      %11 = arith.constant 0.000000e+00 : f32
      %12 = arith.cmpf olt, %10, %11 : f32
      %13 = arith.select %12, %11, %10 : f32
      tile.yield %13 : f32
    } -> tensor<2x4xf32>
    pg.return [#pg.bytes<"v2">], %9 : tensor<2x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<3x4xf32>>
    %2 = pg.constant #pg.data<"00000000000000000000003f0000803f" : tensor<4xf32>>
    %3 = tile.reduce ins(%0, %1 : tensor<2x3xf32>, tensor<3x4xf32>) epilogue_inputs(%2 : tensor<4xf32>)
        domain [2, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%4: f32, %5: f32):
      %6 = arith.addf %4, %5 : f32
      %7 = arith.constant 0.000000e+00 : f32
      %8 = arith.cmpf olt, %6, %7 : f32
      %9 = arith.select %8, %7, %6 : f32
      tile.yield %9 : f32
    } -> tensor<2x4xf32>
    pg.return [#pg.bytes<"v2">], %3 : tensor<2x4xf32>
  }
}
