// In a quick program, the first answer waits for packing: a weight that a run uses once is not packed, its loops stay plain. One with 64 uses is packed.
// -p schedule-contractions{soon=true}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<1x64xf32>, %1: tensor<64x64xf32>):
    %2 = pg.constant #pg.data<seed 1 : tensor<64x64xf32>>
    %3 = tile.reduce ins(%0, %2 : tensor<1x64xf32>, tensor<64x64xf32>) domain [1, 64, 64] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x64xf32>
    %5 = pg.constant #pg.data<seed 2 : tensor<64x64xf32>>
    %6 = tile.reduce ins(%1, %5 : tensor<64x64xf32>, tensor<64x64xf32>) domain [64, 64, 64] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<64x64xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %3, %6 : tensor<1x64xf32>, tensor<64x64xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map2 = affine_map<(d0, d1) -> ((d0 floordiv 64), d1, (d0 mod 64))>
#layout = #tile.layout<#map2, #pg.ints[1, 64, 64]>
!tensor = tensor<64x64xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<1x64xf32>, %1: tensor<64x64xf32>):
    %2 = pg.constant #pg.data<seed 1 : tensor<64x64xf32>>
    %3 = tile.reduce ins(%0, %2 : tensor<1x64xf32>, tensor<64x64xf32>) domain [1, 64, 64] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x64xf32>
    %5 = pg.constant #pg.data<seed 2 : tensor<64x64xf32>>
    %6 = tile.pack %5 : tensor<64x64xf32> -> !tensor
    %7 = tile.reduce ins(%1, %6 : tensor<64x64xf32>, !tensor) domain [64, 64, 64] parallel 2 : i64 maps [#map, #map1]
        epilogue_maps [] product f32 schedule <n_dim 1, n_vectors 4, m_dim 0, mr 6, kc 256, lanes 16> epilogue {
    ^bb0(%8: f32):
      tile.yield %8 : f32
    } -> tensor<64x64xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %3, %7 : tensor<1x64xf32>, tensor<64x64xf32>
  }
}
