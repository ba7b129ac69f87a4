// Chunks are panels, each for all rows: every chunk of rows would read more than 1 MB of panels.
// -p parallelize-loops{threads=2}
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<14x14x1024xf32>, %1: tensor<1024x256xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<14x14x1024xf32>, tensor<1024x256xf32>) domain [14, 14, 256, 1024]
        parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 2, n_vectors 4, m_dim 1, mr 5, kc 256, lanes 16> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<14x14x256xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<14x14x256xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<14x14x1024xf32>, %1: tensor<1024x256xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<14x14x1024xf32>, tensor<1024x256xf32>) domain [14, 14, 256, 1024]
        parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 2, n_vectors 4, m_dim 1, mr 5, kc 256, lanes 16> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } {cut = #tile.cut<loop 0 in 4 of 1>} -> tensor<14x14x256xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<14x14x256xf32>
  }
}
