// Long sums of factors larger than the cache have K outermost: all sums accumulate one chunk of terms,
// then the next. The epilogue runs after the last chunk, as a map.
#map = affine_map<(d0, d1, d2) -> (d2, d0)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<8192x64xf32>, %1: tensor<8192x64xf32>, %2: tensor<64x64xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<8192x64xf32>, tensor<8192x64xf32>) epilogue_inputs(%2 : tensor<64x64xf32>)
        domain [64, 64, 8192] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%4: f32, %5: f32):
      %6 = arith.subf %5, %4 : f32
      tile.yield %6 : f32
    } -> tensor<64x64xf32>
    pg.return [#pg.bytes<"next">], %3 : tensor<64x64xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d2, d0)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<8192x64xf32>, %1: tensor<8192x64xf32>, %2: tensor<64x64xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<8192x64xf32>, tensor<8192x64xf32>) domain [64, 64, 8192] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 2, m_dim 0, mr 14, kc 256, lanes 16, k_outer 1> epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<64x64xf32>
    %5 = tile.map ins(%3, %2 : tensor<64x64xf32>, tensor<64x64xf32>) domain [64, 64] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.subf %7, %6 : f32
      tile.yield %8 : f32
    } -> tensor<64x64xf32>
    pg.return [#pg.bytes<"next">], %5 : tensor<64x64xf32>
  }
}
