// A decision about a contraction takes precedence over the cost estimate.
// -p schedule-contractions{vector-bytes=16 registers=16 schedules="f32 [d0: 64, d1: 16] sum [d2:
//     16]; lhs 16*d0 + d2; constant rhs d1 + 16*d2; result 16*d0 + d1 -> rhs,
//     #tile.schedule<n_dim 1, n_vectors 2, m_dim 0, mr 3, kc 8, lanes 4, n_inner 1>"}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<64x16xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %2 = tile.reduce ins(%0, %1 : tensor<64x16xf32>, tensor<16x16xf32>) domain [64, 16, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<64x16xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<64x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<64x16xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %2 = tile.reduce ins(%0, %1 : tensor<64x16xf32>, tensor<16x16xf32>) domain [64, 16, 16] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 2, m_dim 0, mr 3, kc 8, lanes 4, n_inner 1> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<64x16xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<64x16xf32>
  }
}
