// Rows with a stride of one page share one set of L1: blocks have fewer rows and more vectors than with a stride of an
// odd number of lines.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"apart">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<192x1024xf32>, %1: tensor<192x1040xf32>, %2: tensor<1024x96xf32>):
    %3 = tile.reduce ins(%0, %2 : tensor<192x1024xf32>, tensor<1024x96xf32>) domain [192, 96, 1024] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<192x96xf32>
    %5 = tile.reduce ins(%1, %2 : tensor<192x1040xf32>, tensor<1024x96xf32>) domain [192, 96, 1024] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<192x96xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %3, %5 : tensor<192x96xf32>, tensor<192x96xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> ((d1 floordiv 48), d0, (d1 mod 48))>
#layout = #tile.layout<#map2, #pg.ints[2, 1024, 48]>
!tensor = tensor<1024x96xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"apart">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<192x1024xf32>, %1: tensor<192x1040xf32>, %2: tensor<1024x96xf32>):
    %3 = tile.reduce ins(%0, %2 : tensor<192x1024xf32>, tensor<1024x96xf32>) domain [192, 96, 1024] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 6, m_dim 0, mr 4, kc 256, lanes 16> epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<192x96xf32>
    %5 = tile.pack %2 : tensor<1024x96xf32> -> !tensor
    %6 = tile.reduce ins(%1, %5 : tensor<192x1040xf32>, !tensor) domain [192, 96, 1024] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 3, m_dim 0, mr 9, kc 256, lanes 16> epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<192x96xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %3, %6 : tensor<192x96xf32>, tensor<192x96xf32>
  }
}
