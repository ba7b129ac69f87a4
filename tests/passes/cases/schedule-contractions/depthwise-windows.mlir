// In a depthwise convolution, the steps of a window share the loads of a row of it.
// -p schedule-contractions{vector-bytes=16 registers=16}
#map = affine_map<(d0, d1, d2, d3, d4) -> (((d0 * 2) + d3), ((d1 * 2) + d4), d2)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<9x17x40xf32>, %1: tensor<3x3x40xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<9x17x40xf32>, tensor<3x3x40xf32>) domain [4, 8, 40, 3, 3] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<4x8x40xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<4x8x40xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4) -> (((d0 * 2) + d3), ((d1 * 2) + d4), d2)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<9x17x40xf32>, %1: tensor<3x3x40xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<9x17x40xf32>, tensor<3x3x40xf32>) domain [4, 8, 40, 3, 3] parallel 3 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 2, n_vectors 1, m_dim 1, mr 7, kc 256, lanes 4, n_inner 1, window_panels 10> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<4x8x40xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<4x8x40xf32>
  }
}
