// The copy of an image is fused with the depthwise convolution along pixels that reads it, one channel
// at a time.
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, (d2 + 1), (d3 + 1))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (0, d1, ((d3 + d6) + -1), ((d4 + d5) + -1))>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1, 0, d6, d5)>
#layout = #tile.layout<#map, #pg.ints[1, 8, 14, 18]>
!tensor = tensor<1x8x12x16xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x8x12x16xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x1x3x3xf32>>
    %0 = tile.map ins(%x : tensor<1x8x12x16xf32>) domain [1, 8, 12, 16] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> !tensor
    %2 = tile.reduce ins(%0, %w : !tensor, tensor<8x1x3x3xf32>) domain [1, 8, 1, 12, 16, 3, 3, 1] parallel 5 : i64
        maps [#map1, #map2] epilogue_maps [] product f32
        schedule <n_dim 4, n_vectors 1, m_dim 3, mr 12, kc 256, lanes 16, window_panels 1> epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<1x8x1x12x16xf32>
    %y = tile.view %2 : tensor<1x8x1x12x16xf32> -> tensor<1x8x12x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x8x12x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, (d2 + 1), (d3 + 1))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (0, d1, ((d3 + d6) + -1), ((d4 + d5) + -1))>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1, 0, d6, d5)>
#layout = #tile.layout<#map, #pg.ints[1, 8, 14, 18]>
!tensor = tensor<1x8x12x16xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x8x12x16xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x1x3x3xf32>>
    %0 = tile.fused ins(%x, %w : tensor<1x8x12x16xf32>, tensor<8x1x3x3xf32>) domain [1, 8] steps [1, 1] {
    ^bb0(%1: tensor<1x8x12x16xf32>, %2: tensor<8x1x3x3xf32>):
      %3 = tile.map ins(%1 : tensor<1x8x12x16xf32>) domain [1, 8, 12, 16] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] {
      ^bb0(%4: f32):
        tile.yield %4 : f32
      } -> !tensor
      %5 = tile.reduce ins(%3, %2 : !tensor, tensor<8x1x3x3xf32>) domain [1, 8, 1, 12, 16, 3, 3, 1] parallel 5 : i64
          maps [#map1, #map2] epilogue_maps [] product f32
          schedule <n_dim 4, n_vectors 1, m_dim 3, mr 12, kc 256, lanes 16, window_panels 1> epilogue {
      ^bb0(%6: f32):
        tile.yield %6 : f32
      } -> tensor<1x8x1x12x16xf32>
      tile.yield %5 : tensor<1x8x1x12x16xf32>
    } -> tensor<1x8x1x12x16xf32>
    %y = tile.view %0 : tensor<1x8x1x12x16xf32> -> tensor<1x8x12x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x8x12x16xf32>
  }
}
