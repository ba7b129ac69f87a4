// Among schedules with equal cost, the one whose rows are adjacent in the result: pixels of a line, not of a column.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d5, d6, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x3x26x26xf32>, %w: tensor<3x3x3x64xf32>):
    %y = tile.reduce ins(%x, %w : tensor<1x3x26x26xf32>, tensor<3x3x3x64xf32>) domain [1, 24, 24, 64, 3, 3, 3] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<1x24x24x64xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x24x24x64xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> ((d3 floordiv 64), d1, d2, d0, (d3 mod 64))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (0, d7, (d1 + d5), (d2 + d6))>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d7, d5, d6, d3)>
#layout = #tile.layout<#map, #pg.ints[1, 3, 3, 3, 64]>
!tensor = tensor<3x3x3x64xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x3x26x26xf32>, %w: tensor<3x3x3x64xf32>):
    %0 = tile.pack %w : tensor<3x3x3x64xf32> -> !tensor
    %y = tile.reduce ins(%x, %0 : tensor<1x3x26x26xf32>, !tensor) domain [1, 24, 24, 64, 1, 3, 3, 3] parallel 4 : i64
        maps [#map1, #map2] epilogue_maps [] product f32
        schedule <n_dim 3, n_vectors 4, m_dim 2, mr 6, kc 256, lanes 16> epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<1x24x24x64xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x24x24x64xf32>
  }
}
