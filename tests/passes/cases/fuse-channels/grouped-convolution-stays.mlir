// Each channel of the second convolution reads two of the first: they stay separate.
#map = affine_map<(d0, d1, d2, d3) -> (d2, d3, (d0 floordiv 8), d1, (d0 mod 8))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, d4, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, 0, 0)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, d3, 0, 0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map5 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (0, (((d1 * 2) + d5) + -1), (((d2 * 2) + d6) + -1), ((d3 * 2) + d7))>
#map6 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d3, d4, d7, d5, d6)>
#layout = #tile.layout<#map, #pg.ints[1, 1, 1, 4, 8]>
#layout1 = #tile.layout<#map4, #pg.ints[1, 15, 15, 8]>
!tensor = tensor<8x4x1x1xf32, #layout>
!tensor1 = tensor<1x14x14x8xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x4x14x14xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<8x4x1x1xf32>>
    %2 = pg.constant #pg.data<"0000403f000000bf000080bf000000bf000080be0000403f00000000000080bf" : tensor<1x8x1x1xf32>>
    %3 = tile.pack %1 : tensor<8x4x1x1xf32> -> !tensor
    %4 = tile.reduce ins(%0, %3 : tensor<1x4x14x14xf32>, !tensor) epilogue_inputs(%2 : tensor<1x8x1x1xf32>)
        domain [1, 14, 14, 8, 4, 1] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [#map3] product f32
        schedule <n_dim 3, n_vectors 2, m_dim 2, mr 6, kc 256, lanes 4> epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.addf %5, %6 : f32
      %8 = arith.constant 0.000000e+00 : f32
      %9 = arith.maximumf %7, %8 : f32
      tile.yield %9 : f32
    } -> !tensor1
    %10 = tile.view %4 : !tensor1 -> !tensor1
    %11 = pg.constant #pg.data<seed 2 : tensor<8x2x3x3xf32>>
    %12 = tile.view %11 : tensor<8x2x3x3xf32> -> tensor<4x2x2x3x3xf32>
    %13 = tile.reduce ins(%10, %12 : !tensor1, tensor<4x2x2x3x3xf32>) domain [1, 7, 7, 4, 2, 3, 3, 2] parallel 5 : i64 maps [#map5, #map6] epilogue_maps [] product f32 epilogue {
    ^bb0(%14: f32):
      tile.yield %14 : f32
    } -> tensor<1x7x7x4x2xf32>
    %15 = tile.view %13 : tensor<1x7x7x4x2xf32> -> tensor<1x7x7x8xf32>
    %16 = tile.map ins(%15 : tensor<1x7x7x8xf32>) domain [1, 8, 7, 7] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%17: f32):
      tile.yield %17 : f32
    } -> tensor<1x8x7x7xf32>
    pg.return [#pg.bytes<"v2">], %16 : tensor<1x8x7x7xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d2, d3, (d0 floordiv 8), d1, (d0 mod 8))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, d4, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, 0, 0)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, d3, 0, 0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map5 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (0, (((d1 * 2) + d5) + -1), (((d2 * 2) + d6) + -1), ((d3 * 2) + d7))>
#map6 = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d3, d4, d7, d5, d6)>
#layout = #tile.layout<#map, #pg.ints[1, 1, 1, 4, 8]>
#layout1 = #tile.layout<#map4, #pg.ints[1, 15, 15, 8]>
!tensor = tensor<8x4x1x1xf32, #layout>
!tensor1 = tensor<1x14x14x8xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x4x14x14xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<8x4x1x1xf32>>
    %2 = pg.constant #pg.data<"0000403f000000bf000080bf000000bf000080be0000403f00000000000080bf" : tensor<1x8x1x1xf32>>
    %3 = tile.pack %1 : tensor<8x4x1x1xf32> -> !tensor
    %4 = tile.reduce ins(%0, %3 : tensor<1x4x14x14xf32>, !tensor) epilogue_inputs(%2 : tensor<1x8x1x1xf32>)
        domain [1, 14, 14, 8, 4, 1] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [#map3] product f32
        schedule <n_dim 3, n_vectors 2, m_dim 2, mr 6, kc 256, lanes 4> epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.addf %5, %6 : f32
      %8 = arith.constant 0.000000e+00 : f32
      %9 = arith.maximumf %7, %8 : f32
      tile.yield %9 : f32
    } -> !tensor1
    %10 = tile.view %4 : !tensor1 -> !tensor1
    %11 = pg.constant #pg.data<seed 2 : tensor<8x2x3x3xf32>>
    %12 = tile.view %11 : tensor<8x2x3x3xf32> -> tensor<4x2x2x3x3xf32>
    %13 = tile.reduce ins(%10, %12 : !tensor1, tensor<4x2x2x3x3xf32>) domain [1, 7, 7, 4, 2, 3, 3, 2] parallel 5 : i64 maps [#map5, #map6] epilogue_maps [] product f32 epilogue {
    ^bb0(%14: f32):
      tile.yield %14 : f32
    } -> tensor<1x7x7x4x2xf32>
    %15 = tile.view %13 : tensor<1x7x7x4x2xf32> -> tensor<1x7x7x8xf32>
    %16 = tile.map ins(%15 : tensor<1x7x7x8xf32>) domain [1, 8, 7, 7] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%17: f32):
      tile.yield %17 : f32
    } -> tensor<1x8x7x7xf32>
    pg.return [#pg.bytes<"v2">], %16 : tensor<1x8x7x7xf32>
  }
}
