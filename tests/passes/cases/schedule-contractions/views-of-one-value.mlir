// Contractions that read a value through views of their own share what is packed, as the phases of a
// transposed convolution do.
// -p schedule-contractions{vector_bytes=32 registers=16}
#map = affine_map<(d0, d1, d2) -> (d2, d0)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<64x512xf32>, %w: tensor<64x4x8xf32>):
    %0 = tile.view %w : tensor<64x4x8xf32> -> tensor<64x32xf32>
    %y = tile.reduce ins(%x, %0 : tensor<64x512xf32>, tensor<64x32xf32>) domain [512, 32, 64] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<512x32xf32>
    %2 = tile.view %w : tensor<64x4x8xf32> -> tensor<64x32xf32>
    %z = tile.reduce ins(%x, %2 : tensor<64x512xf32>, tensor<64x32xf32>) domain [512, 32, 64] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      %4 = arith.negf %3 : f32
      tile.yield %4 : f32
    } -> tensor<512x32xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %y, %z : tensor<512x32xf32>, tensor<512x32xf32>
  }
}
// -----
#map = affine_map<(d0, d1) -> ((d1 floordiv 16), d0, (d1 mod 16))>
#map1 = affine_map<(d0, d1) -> (d1, d0)>
#map2 = affine_map<(d0, d1, d2) -> (d2, d0)>
#map3 = affine_map<(d0, d1, d2) -> (d2, d1)>
#layout = #tile.layout<#map, #pg.ints[2, 64, 16]>
#layout1 = #tile.layout<#map1, #pg.ints[512, 64]>
!tensor = tensor<64x32xf32, #layout>
!tensor1 = tensor<64x512xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<64x512xf32>, %w: tensor<64x4x8xf32>):
    %0 = tile.view %w : tensor<64x4x8xf32> -> tensor<64x32xf32>
    %1 = tile.pack %0 : tensor<64x32xf32> -> !tensor
    %2 = tile.pack %x : tensor<64x512xf32> -> !tensor1
    %y = tile.reduce ins(%2, %1 : !tensor1, !tensor) domain [512, 32, 64] parallel 2 : i64 maps [#map2, #map3]
        epilogue_maps [] product f32 schedule <n_dim 1, n_vectors 2, m_dim 0, mr 6, kc 256, lanes 8> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<512x32xf32>
    %z = tile.reduce ins(%2, %1 : !tensor1, !tensor) domain [512, 32, 64] parallel 2 : i64 maps [#map2, #map3]
        epilogue_maps [] product f32 schedule <n_dim 1, n_vectors 2, m_dim 0, mr 6, kc 256, lanes 8> epilogue {
    ^bb0(%4: f32):
      %5 = arith.negf %4 : f32
      tile.yield %5 : f32
    } -> tensor<512x32xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %y, %z : tensor<512x32xf32>, tensor<512x32xf32>
  }
}
