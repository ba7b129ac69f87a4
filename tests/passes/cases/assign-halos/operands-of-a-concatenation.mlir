// Operands of a concatenation are computed in its memory, between its halos.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<1x2x3x4xf32>):
    %1 = pg.constant #pg.data<"000000bf000080be000000000000803e0000003f000000bf000080be00000000" : tensor<4x2x1x1xf32>>
    %2 = pg.constant #pg.data<"000000bf000080be000000000000803e" : tensor<2x2x1x1xf32>>
    %3 = pg.constant #pg.data<seed 1 : tensor<1x6x3x3xf32>>
    %4 = tile.reduce ins(%0, %1 : tensor<1x2x3x4xf32>, tensor<4x2x1x1xf32>) domain [1, 3, 4, 4, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<1x3x4x4xf32>
    %6 = tile.reduce ins(%0, %2 : tensor<1x2x3x4xf32>, tensor<2x2x1x1xf32>) domain [1, 3, 4, 2, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<1x3x4x2xf32>
    %8 = tile.assemble(%4, %6 : tensor<1x3x4x4xf32>, tensor<1x3x4x2xf32>) offsets [0, 0, 0, 0, 0, 0, 0, 4] steps [1, 1, 1, 1, 1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x3x4x6xf32>
    %9 = tile.assemble(%8 : tensor<1x3x4x6xf32>) offsets [0, 1, 1, 0] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x5x6x6xf32>
    %10 = tile.reduce ins(%9, %3 : tensor<1x5x6x6xf32>, tensor<1x6x3x3xf32>) domain [1, 3, 4, 1, 3, 3, 6] parallel 4 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%11: f32):
      tile.yield %11 : f32
    } -> tensor<1x3x4x1xf32>
    %12 = tile.map ins(%10 : tensor<1x3x4x1xf32>) domain [1, 1, 3, 4] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%13: f32):
      tile.yield %13 : f32
    } -> tensor<1x1x3x4xf32>
    pg.return [#pg.bytes<"y">], %12 : tensor<1x1x3x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), (d3 + 4))>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, ((d1 + d4) + -1), ((d2 + d5) + -1), d6)>
#map5 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
#layout = #tile.layout<#map2, #pg.ints[1, 5, 6, 6], part 3>
#layout1 = #tile.layout<#map3, #pg.ints[1, 5, 6, 6], part 3>
#layout2 = #tile.layout<#map2, #pg.ints[1, 5, 6, 6]>
!tensor = tensor<1x3x4x4xf32, #layout>
!tensor1 = tensor<1x3x4x2xf32, #layout1>
!tensor2 = tensor<1x3x4x6xf32, #layout2>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<1x2x3x4xf32>):
    %1 = pg.constant #pg.data<"000000bf000080be000000000000803e0000003f000000bf000080be00000000" : tensor<4x2x1x1xf32>>
    %2 = pg.constant #pg.data<"000000bf000080be000000000000803e" : tensor<2x2x1x1xf32>>
    %3 = pg.constant #pg.data<seed 1 : tensor<1x6x3x3xf32>>
    %4 = tile.reduce ins(%0, %1 : tensor<1x2x3x4xf32>, tensor<4x2x1x1xf32>) domain [1, 3, 4, 4, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> !tensor
    %6 = tile.reduce ins(%0, %2 : tensor<1x2x3x4xf32>, tensor<2x2x1x1xf32>) domain [1, 3, 4, 2, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> !tensor1
    %8 = tile.assemble(%4, %6 : !tensor, !tensor1) offsets [0, 0, 0, 0, 0, 0, 0, 4] steps [1, 1, 1, 1, 1, 1, 1, 1] fill 0.000000e+00 : f32 -> !tensor2
    %9 = tile.reduce ins(%8, %3 : !tensor2, tensor<1x6x3x3xf32>) domain [1, 3, 4, 1, 3, 3, 6] parallel 4 : i64 maps [#map4, #map5] epilogue_maps [] product f32 epilogue {
    ^bb0(%10: f32):
      tile.yield %10 : f32
    } -> tensor<1x3x4x1xf32>
    %11 = tile.map ins(%9 : tensor<1x3x4x1xf32>) domain [1, 1, 3, 4] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%12: f32):
      tile.yield %12 : f32
    } -> tensor<1x1x3x4xf32>
    pg.return [#pg.bytes<"y">], %11 : tensor<1x1x3x4xf32>
  }
}
