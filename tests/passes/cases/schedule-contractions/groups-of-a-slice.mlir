// Channels are a digit of the first index of weights, and the window reads a slice of them.
// -p schedule-contractions{vector-bytes=16 registers=16 least-products=64}
#map = affine_map<(d0, d1, d2, d3, d4) -> ((d0 + d3), ((d1 * 4) + d4))>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (((d1 * 4) + d2), d4, (d3 + 1))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<10x16xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x4x5xf32>>
    %2 = tile.reduce ins(%0, %1 : tensor<10x16xf32>, tensor<16x4x5xf32>) domain [8, 4, 4, 3, 4] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<8x4x4xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<8x4x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> ((d0 floordiv 4), ((d0 mod 4) floordiv 4), d2, d1, ((d0 mod 4) mod 4))>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> ((d0 + d3), ((d1 * 4) + d4))>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (((d1 * 4) + d2), d4, (d3 + 1))>
#layout = #tile.layout<#map, #pg.ints[4, 1, 5, 4, 4]>
!tensor = tensor<16x4x5xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<10x16xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x4x5xf32>>
    %2 = tile.pack %1 : tensor<16x4x5xf32> -> !tensor
    %3 = tile.reduce ins(%0, %2 : tensor<10x16xf32>, !tensor) domain [8, 4, 4, 3, 4] parallel 3 : i64
        maps [#map1, #map2] epilogue_maps [] product f32
        schedule <n_dim 2, n_vectors 1, m_dim 0, mr 8, kc 256, lanes 4> epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<8x4x4xf32>
    pg.return [#pg.bytes<"y">], %3 : tensor<8x4x4xf32>
  }
}
