// The gradient of a weight: terms have a large stride in both factors. One factor is packed into panels of vectors, the
// other one has its terms contiguous.
#map = affine_map<(d0, d1, d2) -> (d2, d1)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d0)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%0: tensor<512x256xf32>, %1: tensor<512x768xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<512x256xf32>, tensor<512x768xf32>) domain [768, 256, 512] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<768x256xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<768x256xf32>
  }
}
// -----
#map = affine_map<(d0, d1) -> ((d1 floordiv 64), d0, (d1 mod 64))>
#map1 = affine_map<(d0, d1) -> (d1, d0)>
#map2 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map3 = affine_map<(d0, d1, d2) -> (d2, d0)>
#layout = #tile.layout<#map, #pg.ints[4, 512, 64]>
#layout1 = #tile.layout<#map1, #pg.ints[768, 512]>
!tensor = tensor<512x256xf32, #layout>
!tensor1 = tensor<512x768xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%0: tensor<512x256xf32>, %1: tensor<512x768xf32>):
    %2 = tile.pack %0 : tensor<512x256xf32> -> !tensor
    %3 = tile.pack %1 : tensor<512x768xf32> -> !tensor1
    %4 = tile.reduce ins(%2, %3 : !tensor, !tensor1) domain [768, 256, 512] parallel 2 : i64 maps [#map2, #map3]
        epilogue_maps [] product f32 schedule <n_dim 1, n_vectors 4, m_dim 0, mr 6, kc 256, lanes 16, n_inner 1>
        epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<768x256xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<768x256xf32>
  }
}
