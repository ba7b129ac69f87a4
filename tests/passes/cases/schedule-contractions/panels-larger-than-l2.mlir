// Panels that together fill L2 are the outer loop, each for all rows.
// -p schedule-contractions{vector_bytes=64 registers=32}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<512x256xf32>, %w: tensor<1024x256xf32>):
    %y = tile.reduce ins(%x, %w : tensor<512x256xf32>, tensor<1024x256xf32>) domain [512, 1024, 256] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<512x1024xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<512x1024xf32>
  }
}
// -----
#map = affine_map<(d0, d1) -> ((d0 floordiv 48), d1, (d0 mod 48))>
#map1 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d1, d2)>
#layout = #tile.layout<#map, #pg.ints[22, 256, 48]>
!tensor = tensor<1024x256xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<512x256xf32>, %w: tensor<1024x256xf32>):
    %0 = tile.pack %w : tensor<1024x256xf32> -> !tensor
    %y = tile.reduce ins(%x, %0 : tensor<512x256xf32>, !tensor) domain [512, 1024, 256] parallel 2 : i64
        maps [#map1, #map2] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 3, m_dim 0, mr 9, kc 256, lanes 16> epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<512x1024xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<512x1024xf32>
  }
}
