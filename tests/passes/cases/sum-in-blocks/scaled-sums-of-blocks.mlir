// Scaled and added sums of two blocks of sixteen terms become one contraction, which scales the sum of each block.
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d1, d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"s">] {
  ^bb0(%x: tensor<3x2x16xf32>, %w: tensor<2x16x4xf32>, %s: tensor<2x4xf32>):
    %0 = tile.reduce ins(%x, %w : tensor<3x2x16xf32>, tensor<2x16x4xf32>) domain [3, 2, 4, 16] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<3x2x4xf32>
    %2 = tile.map ins(%0, %s : tensor<3x2x4xf32>, tensor<2x4xf32>) domain [2, 3, 4] maps [affine_map<(d0, d1, d2) -> (d1, d0, d2)>, affine_map<(d0, d1, d2) -> (d0, d2)>] {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.mulf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<2x3x4xf32>
    %y = tile.reduce ins(%2 : tensor<2x3x4xf32>) domain [3, 4, 2] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d2, d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.addf %7, %6 : f32
      tile.yield %8 : f32
    } epilogue {
    ^bb0(%9: f32):
      tile.yield %9 : f32
    } -> tensor<3x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d2, d3, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"s">] {
  ^bb0(%x: tensor<3x2x16xf32>, %w: tensor<2x16x4xf32>, %s: tensor<2x4xf32>):
    %y = tile.reduce ins(%x, %w : tensor<3x2x16xf32>, tensor<2x16x4xf32>) block_inputs(%s : tensor<2x4xf32>)
        domain [3, 4, 2, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } block {
    ^bb0(%1: f32, %2: f32):
      %3 = arith.mulf %1, %2 : f32
      tile.yield %3 : f32
    } loops 1 : i64 block_maps [affine_map<(d0, d1, d2) -> (d2, d1)>] -> tensor<3x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x4xf32>
  }
}
