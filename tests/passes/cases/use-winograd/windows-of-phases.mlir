// A 2x2 window with stride one needs fewer multiplications: one phase of a transposed 4x4 convolution,
// which reads every other row and column of the weights in reverse.
// -p use-winograd{winograd_gain=0}
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5 + 1), d6)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d6, d3, (d4 * -2 + 3), (d5 * -2 + 2))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x8x8x16xf32>, %w: tensor<16x8x4x4xf32>):
    %y = tile.reduce ins(%x, %w : tensor<1x8x8x16xf32>, tensor<16x8x4x4xf32>) domain [1, 6, 6, 8, 2, 2, 16] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<1x6x6x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x6x6x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, d4, d5)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d4, d5, d3)>
#map2 = affine_map<(d0, d1, d2) -> ((d2 floordiv 16), d0, d1, (d2 mod 16))>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#data = #pg.data<"0000803f0000000000000000000000000000803f0000803f0000000000000000000000000000803f00000000000000000000803f000000000000803f00000000"
    "0000803f0000803f0000803f0000803f000000000000803f000000000000803f00000000000000000000803f0000000000000000000000000000803f0000803f"
    "0000000000000000000000000000803f" : tensor<9x2x2xf32>>
#layout = #tile.layout<#map2, #pg.ints[1, 9, 16, 16]>
#layout1 = #tile.layout<#map3, #pg.ints[9, 9, 16]>
!tensor = tensor<9x16x8xf32, #layout>
!tensor1 = tensor<9x9x16xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x8x8x16xf32>, %w: tensor<16x8x4x4xf32>):
    %0 = tile.map ins(%w : tensor<16x8x4x4xf32>) domain [1, 16, 2, 2, 8] maps [affine_map<(d0, d1, d2, d3, d4) -> (d1, ((d0 * 8) + d4), ((d2 * -2) + 3), ((d3 * -2) + 2))>] {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<1x16x2x2x8xf32>
    %2 = pg.constant #data
    %3 = tile.reduce ins(%2, %0 : tensor<9x2x2xf32>, tensor<1x16x2x2x8xf32>) domain [1, 9, 16, 8, 2, 2] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x9x16x8xf32>
    %5 = tile.view %3 : tensor<1x9x16x8xf32> -> tensor<9x16x8xf32>
    %6 = tile.pack %5 : tensor<9x16x8xf32> -> !tensor
    %7 = tile.transform_tiles %x : tensor<1x8x8x16xf32> images [1, 6, 6] offset [0, 1] size 2 : i64 matrix <[1.0, -1.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 1.0]> -> !tensor1
    %y = tile.fused ins(%7, %6 : !tensor1, !tensor) domain [8, 9] steps [16, 9] loops [#pg.ints[2, 1], #pg.ints[1, 0]] {
    ^bb0(%8: !tensor1, %9: !tensor):
      %10 = tile.reduce ins(%8, %9 : !tensor1, !tensor) domain [9, 9, 8, 16] parallel 3 : i64 maps [#map4, #map5]
          epilogue_maps [] product f32 schedule <n_dim 2, n_vectors 1, m_dim 1, mr 14, kc 64, lanes 16> epilogue {
      ^bb0(%11: f32):
        tile.yield %11 : f32
      } -> tensor<9x9x8xf32>
      %y_1 = tile.transform_tiles %10 : tensor<9x9x8xf32> images [1, 6, 6] size 2 : i64 matrix <[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]> epilogue_maps [] epilogue {
      ^bb0(%12: f32):
        tile.yield %12 : f32
      } -> tensor<1x6x6x8xf32>
      tile.yield %y_1 : tensor<1x6x6x8xf32>
    } -> tensor<1x6x6x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x6x6x8xf32>
  }
}
