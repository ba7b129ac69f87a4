// Three panels are not divisible between two threads: the rows are divided.
// -p parallelize-loops{threads=2}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<98x256xf32>, %1: tensor<256x96xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<98x256xf32>, tensor<256x96xf32>) domain [98, 96, 256] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32 schedule <n_dim 1, n_vectors 2, m_dim 0, mr 14, kc 256, lanes 16> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<98x96xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<98x96xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<98x256xf32>, %1: tensor<256x96xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<98x256xf32>, tensor<256x96xf32>) domain [98, 96, 256] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 2, m_dim 0, mr 14, kc 256, lanes 16> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } {cut = #tile.cut<loop 1 in 2 of 49>} -> tensor<98x96xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<98x96xf32>
  }
}
