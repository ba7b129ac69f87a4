// Zero padding becomes a halo in the memory of the tensor; its reader starts one row before the first.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<1x2x3x4xf32>):
    %1 = pg.constant #pg.data<"000000bf000080be000000000000803e0000003f000000bf000080be00000000" : tensor<4x2x1x1xf32>>
    %2 = pg.constant #pg.data<seed 1 : tensor<1x4x3x3xf32>>
    %3 = tile.reduce ins(%0, %1 : tensor<1x2x3x4xf32>, tensor<4x2x1x1xf32>) domain [1, 3, 4, 4, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x3x4x4xf32>
    %5 = tile.assemble(%3 : tensor<1x3x4x4xf32>) offsets [0, 1, 1, 0] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x5x6x4xf32>
    %6 = tile.reduce ins(%5, %2 : tensor<1x5x6x4xf32>, tensor<1x4x3x3xf32>) domain [1, 3, 4, 1, 3, 3, 4] parallel 4 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<1x3x4x1xf32>
    %8 = tile.map ins(%6 : tensor<1x3x4x1xf32>) domain [1, 1, 3, 4] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%9: f32):
      tile.yield %9 : f32
    } -> tensor<1x1x3x4xf32>
    pg.return [#pg.bytes<"y">], %8 : tensor<1x1x3x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, ((d1 + d4) + -1), ((d2 + d5) + -1), d6)>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
#layout = #tile.layout<#map2, #pg.ints[1, 5, 6, 4]>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<1x2x3x4xf32>):
    %1 = pg.constant #pg.data<"000000bf000080be000000000000803e0000003f000000bf000080be00000000" : tensor<4x2x1x1xf32>>
    %2 = pg.constant #pg.data<seed 1 : tensor<1x4x3x3xf32>>
    %3 = tile.reduce ins(%0, %1 : tensor<1x2x3x4xf32>, tensor<4x2x1x1xf32>) domain [1, 3, 4, 4, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x3x4x4xf32, #layout>
    %5 = tile.reduce ins(%3, %2 : tensor<1x3x4x4xf32, #layout>, tensor<1x4x3x3xf32>) domain [1, 3, 4, 1, 3, 3, 4] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<1x3x4x1xf32>
    %7 = tile.map ins(%5 : tensor<1x3x4x1xf32>) domain [1, 1, 3, 4] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%8: f32):
      tile.yield %8 : f32
    } -> tensor<1x1x3x4xf32>
    pg.return [#pg.bytes<"y">], %7 : tensor<1x1x3x4xf32>
  }
}
