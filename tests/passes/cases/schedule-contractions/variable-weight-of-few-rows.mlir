// A matmul of few rows by a weight that changes in every step: the weight is read once, in as many streams as a
// chunk has terms.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<4x512xf32>, %1: tensor<512x2048xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<4x512xf32>, tensor<512x2048xf32>) domain [4, 2048, 512] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<4x2048xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<4x2048xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<4x512xf32>, %1: tensor<512x2048xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<4x512xf32>, tensor<512x2048xf32>) domain [4, 2048, 512] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 6, m_dim 0, mr 4, kc 16, lanes 16, k_outer 1> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<4x2048xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<4x2048xf32>
  }
}
