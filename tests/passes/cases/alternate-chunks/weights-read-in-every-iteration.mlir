// Every iteration reads panels of 4 MB once: L2 holds the last two of eight chunks. Operands that are
// read before the loop or fit in L2 are not divided.
// -p alternate-chunks
#map = affine_map<(d0, d1, d2) -> (d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d0, d1)>
#map2 = affine_map<(d0, d1) -> (d1)>
#map3 = affine_map<(d0, d1) -> (d1, d0)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<512xf32>, %1: tensor<512x4x512xf32>, %2: tensor<512x256xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<512xf32>, tensor<512x4x512xf32>) domain [4, 512, 512] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32 schedule <n_dim 1, n_vectors 4, m_dim 0, mr 4, kc 256, lanes 16> epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<4x512xf32>
    %5, %6, %7 = pg.call_loop @loop_0 trips 3 carried (%0, %3)
        captured (%1, %2) : (tensor<512xf32>, tensor<4x512xf32>, tensor<512x4x512xf32>, tensor<512x256xf32>) -> (tensor<512xf32>, tensor<4x512xf32>, tensor<3x256xf32>)
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %6, %7 : tensor<4x512xf32>, tensor<3x256xf32>
  }
  pg.graph @loop_0 inputs [#pg.bytes<"turn">, #pg.bytes<"carried0">, #pg.bytes<"carried1">, #pg.bytes<"captured0">, #pg.bytes<"captured1">] {
  ^bb0(%8: tensor<i64>, %9: tensor<512xf32>, %10: tensor<4x512xf32>, %11: tensor<512x4x512xf32>, %12: tensor<512x256xf32>):
    %13 = tile.reduce ins(%9, %11 : tensor<512xf32>, tensor<512x4x512xf32>) domain [4, 512, 512] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32 schedule <n_dim 1, n_vectors 4, m_dim 0, mr 4, kc 256, lanes 16> epilogue {
    ^bb0(%14: f32):
      tile.yield %14 : f32
    } -> tensor<4x512xf32>
    %15 = tile.reduce ins(%9, %12 : tensor<512xf32>, tensor<512x256xf32>) domain [256, 512] parallel 1 : i64
        maps [#map2, #map3] epilogue_maps [] product f32 schedule <n_dim 0, n_vectors 4, m_dim -1, mr 1, kc 256, lanes 16>
        epilogue {
    ^bb0(%16: f32):
      tile.yield %16 : f32
    } -> tensor<256xf32>
    pg.return [#pg.bytes<"carried0">, #pg.bytes<"carried1">, #pg.bytes<"row0">], %9, %13, %15 : tensor<512xf32>, tensor<4x512xf32>, tensor<256xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d0, d1)>
#map2 = affine_map<(d0, d1) -> (d1)>
#map3 = affine_map<(d0, d1) -> (d1, d0)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<512xf32>, %1: tensor<512x4x512xf32>, %2: tensor<512x256xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<512xf32>, tensor<512x4x512xf32>) domain [4, 512, 512] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 4, m_dim 0, mr 4, kc 256, lanes 16> epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<4x512xf32>
    %5, %6, %7 = pg.call_loop @loop_0 trips 3 carried (%0, %3)
        captured (%1, %2) : (tensor<512xf32>, tensor<4x512xf32>, tensor<512x4x512xf32>, tensor<512x256xf32>) -> (tensor<512xf32>, tensor<4x512xf32>, tensor<3x256xf32>)
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %6, %7 : tensor<4x512xf32>, tensor<3x256xf32>
  }
  pg.graph @loop_0 inputs [#pg.bytes<"turn">, #pg.bytes<"carried0">, #pg.bytes<"carried1">, #pg.bytes<"captured0">, #pg.bytes<"captured1">] {
  ^bb0(%8: tensor<i64>, %9: tensor<512xf32>, %10: tensor<4x512xf32>, %11: tensor<512x4x512xf32>, %12: tensor<512x256xf32>):
    %13 = tile.reduce ins(%9, %11 : tensor<512xf32>, tensor<512x4x512xf32>) domain [4, 512, 512] parallel 2 : i64
        maps [#map, #map1] epilogue_maps [] product f32
        schedule <n_dim 1, n_vectors 4, m_dim 0, mr 4, kc 256, lanes 16> epilogue {
    ^bb0(%14: f32):
      tile.yield %14 : f32
    } {cut = #tile.cut<loop 0 in 8 of 1, alternating>} -> tensor<4x512xf32>
    %15 = tile.reduce ins(%9, %12 : tensor<512xf32>, tensor<512x256xf32>) domain [256, 512] parallel 1 : i64
        maps [#map2, #map3] epilogue_maps [] product f32
        schedule <n_dim 0, n_vectors 4, m_dim -1, mr 1, kc 256, lanes 16> epilogue {
    ^bb0(%16: f32):
      tile.yield %16 : f32
    } -> tensor<256xf32>
    pg.return [#pg.bytes<"carried0">, #pg.bytes<"carried1">, #pg.bytes<"row0">], %9, %13, %15 : tensor<512xf32>, tensor<4x512xf32>, tensor<256xf32>
  }
}
