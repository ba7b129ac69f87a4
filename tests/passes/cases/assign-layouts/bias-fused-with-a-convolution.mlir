// A bias that has the rank of the result but is not an updated weight stays fused with the sums.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d2 + d5), (d3 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3) -> (0, d1, 0, 0)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"image">] {
  ^bb0(%image: tensor<1x2x4x4xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x2x1x1xf32>>
    %b = pg.constant #pg.data<"000080bf000040bf000000bf000080be000000000000803e0000003f0000403f" : tensor<1x8x1x1xf32>>
    %y = tile.reduce ins(%image, %w : tensor<1x2x4x4xf32>, tensor<8x2x1x1xf32>) epilogue_inputs(%b : tensor<1x8x1x1xf32>)
        domain [1, 8, 4, 4, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%c: f32, %d: f32):
      %e = arith.addf %c, %d : f32
      tile.yield %e : f32
    } -> tensor<1x8x4x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x8x4x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3) -> (0, d3, 0, 0)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"image">] {
  ^bb0(%image: tensor<1x2x4x4xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x2x1x1xf32>>
    %b = pg.constant #pg.data<"000080bf000040bf000000bf000080be000000000000803e0000003f0000403f" : tensor<1x8x1x1xf32>>
    %y = tile.reduce ins(%image, %w : tensor<1x2x4x4xf32>, tensor<8x2x1x1xf32>)
        epilogue_inputs(%b : tensor<1x8x1x1xf32>) domain [1, 4, 4, 8, 2, 1, 1] parallel 4 : i64 maps [#map, #map1]
        epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%c: f32, %d: f32):
      %e = arith.addf %c, %d : f32
      tile.yield %e : f32
    } -> tensor<1x4x4x8xf32>
    %0 = tile.map ins(%y : tensor<1x4x4x8xf32>) domain [1, 8, 4, 4] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<1x8x4x4xf32>
    pg.return [#pg.bytes<"y">], %0 : tensor<1x8x4x4xf32>
  }
}
