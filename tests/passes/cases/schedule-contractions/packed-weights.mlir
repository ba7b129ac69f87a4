// Weights are packed into panels along vectors; rows are blocked beside them.
// -p schedule-contractions{vector-bytes=16 registers=16}
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
#map = affine_map<(d0, d1) -> ((d1 floordiv 8), d0, (d1 mod 8))>
#map1 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d2, d1)>
#layout = #tile.layout<#map, #pg.ints[2, 16, 8]>
!tensor = tensor<16x16xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<64x16xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %2 = tile.pack %1 : tensor<16x16xf32> -> !tensor
    %3 = tile.reduce ins(%0, %2 : tensor<64x16xf32>, !tensor) domain [64, 16, 16] parallel 2 : i64 maps [#map1, #map2]
        epilogue_maps [] product f32 schedule <n_dim 1, n_vectors 2, m_dim 0, mr 6, kc 256, lanes 4> epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<64x16xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<64x16xf32>
  }
}
