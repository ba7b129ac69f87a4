// A scheduled contraction stays: its schedule is about the loops that it has.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<5x7x16xf32>, %w: tensor<16x24xf32>):
    %y = tile.reduce ins(%x, %w : tensor<5x7x16xf32>, tensor<16x24xf32>) domain [5, 7, 24, 16] parallel 3 : i64
        maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d2)>]
        epilogue_maps [] product f32 schedule <n_dim 2, n_vectors 1, m_dim 1, mr 7, kc 256, lanes 8> epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<5x7x24xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<5x7x24xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<5x7x16xf32>, %w: tensor<16x24xf32>):
    %y = tile.reduce ins(%x, %w : tensor<5x7x16xf32>, tensor<16x24xf32>) domain [5, 7, 24, 16] parallel 3 : i64
        maps [#map, #map1] epilogue_maps [] product f32 schedule <n_dim 2, n_vectors 1, m_dim 1, mr 7, kc 256, lanes 8>
        epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<5x7x24xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<5x7x24xf32>
  }
}
