// Few reads convert 2-bit values, as no vector has four lanes to select from.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<4x16xf32>, %w: tensor<2x8xi32>):
    %0 = tile.map ins(%w : tensor<2x8xi32>) domain [2, 8, 8] maps [#map] {
    ^bb0(%1: i32):
      %2 = tile.index 1 : i64
      %3 = arith.index_cast %2 : index to i32
      %4 = arith.constant 2 : i32
      %5 = arith.muli %3, %4 : i32
      %6 = arith.shrsi %1, %5 : i32
      %7 = arith.constant 3 : i32
      %8 = arith.andi %6, %7 : i32
      tile.yield %8 : i32
    } -> tensor<2x8x8xi32>
    %9 = tile.view %0 : tensor<2x8x8xi32> -> tensor<16x8xi32>
    %10 = tile.map ins(%9 : tensor<16x8xi32>) domain [16, 8] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%11: i32):
      %12 = arith.sitofp %11 : i32 to f32
      %13 = arith.constant -2.000000e+00 : f32
      %14 = arith.addf %12, %13 : f32
      tile.yield %14 : f32
    } -> tensor<16x8xf32>
    %y = tile.reduce ins(%x, %10 : tensor<4x16xf32>, tensor<16x8xf32>) domain [4, 8, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<4x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<4x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, ((d2 * 8) + d3))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<4x16xf32>, %w: tensor<2x8xi32>):
    %y = tile.reduce ins(%x, %w : tensor<4x16xf32>, tensor<2x8xi32>) domain [4, 8, 2, 8] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product [0.000000e+00 : f32] {
    ^bb0(%0: f32, %1: i32, %2: f32):
      %3 = tile.index 3 : i64
      %4 = arith.index_cast %3 : index to i32
      %5 = arith.constant 2 : i32
      %6 = arith.muli %4, %5 : i32
      %7 = arith.shrsi %1, %6 : i32
      %8 = arith.constant 3 : i32
      %9 = arith.andi %7, %8 : i32
      %10 = arith.sitofp %9 : i32 to f32
      %11 = arith.constant -2.000000e+00 : f32
      %12 = arith.addf %10, %11 : f32
      %13 = arith.mulf %0, %12 : f32
      %14 = arith.addf %2, %13 : f32
      tile.yield %14 : f32
    } epilogue {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<4x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<4x8xf32>
  }
}
