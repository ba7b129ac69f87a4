// The result of the first convolution is an output, too, and needed as a whole: they stay separate.
#map = affine_map<(d0, d1, d2, d3) -> (d2, d3, (d0 floordiv 8), d1, (d0 mod 8))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, d4, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, 0, 0)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, d3, 0, 0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>
#map6 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, (((d1 * 2) + d5) + -1), (((d2 * 2) + d6) + -1), d3)>
#map7 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, d5, d6, d3)>
#layout = #tile.layout<#map, #pg.ints[1, 1, 2, 4, 8]>
#layout1 = #tile.layout<#map4, #pg.ints[1, 15, 15, 16]>
!tensor = tensor<16x4x1x1xf32, #layout>
!tensor1 = tensor<1x14x14x16xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x4x14x14xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x4x1x1xf32>>
    %2 = pg.constant #pg.data<seed 2 : tensor<1x16x1x1xf32>>
    %3 = tile.pack %1 : tensor<16x4x1x1xf32> -> !tensor
    %4 = tile.reduce ins(%0, %3 : tensor<1x4x14x14xf32>, !tensor) epilogue_inputs(%2 : tensor<1x16x1x1xf32>)
        domain [1, 14, 14, 16, 4, 1] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [#map3] product f32
        schedule <n_dim 3, n_vectors 2, m_dim 2, mr 6, kc 256, lanes 4> epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.addf %5, %6 : f32
      %8 = arith.constant 0.000000e+00 : f32
      %9 = arith.maximumf %7, %8 : f32
      tile.yield %9 : f32
    } -> !tensor1
    %10 = tile.view %4 : !tensor1 -> !tensor1
    %11 = tile.map ins(%10 : !tensor1) domain [1, 16, 14, 14] maps [#map5] {
    ^bb0(%12: f32):
      tile.yield %12 : f32
    } -> tensor<1x16x14x14xf32>
    %13 = pg.constant #pg.data<seed 3 : tensor<16x1x3x3xf32>>
    %14 = tile.map ins(%13 : tensor<16x1x3x3xf32>) domain [1, 3, 3, 16] maps [affine_map<(d0, d1, d2, d3) -> (d3, d0, d1, d2)>] {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<1x3x3x16xf32>
    %16 = tile.reduce ins(%10, %14 : !tensor1, tensor<1x3x3x16xf32>) domain [1, 7, 7, 16, 1, 3, 3] parallel 4 : i64
        maps [#map6, #map7] epilogue_maps [] product f32 schedule <n_dim 3, n_vectors 1, m_dim 2, mr 7, kc 256, lanes 4> epilogue {
    ^bb0(%17: f32):
      tile.yield %17 : f32
    } -> tensor<1x7x7x16xf32>
    %18 = tile.view %16 : tensor<1x7x7x16xf32> -> tensor<1x1x7x7x16xf32>
    %19 = tile.map ins(%18 : tensor<1x1x7x7x16xf32>) domain [1, 16, 7, 7] maps [affine_map<(d0, d1, d2, d3) -> (0, 0, d2, d3, d1)>] {
    ^bb0(%20: f32):
      tile.yield %20 : f32
    } -> tensor<1x16x7x7xf32>
    pg.return [#pg.bytes<"v1">, #pg.bytes<"v2">], %11, %19 : tensor<1x16x14x14xf32>, tensor<1x16x7x7xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d2, d3, (d0 floordiv 8), d1, (d0 mod 8))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, d4, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, 0, 0)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, d3, 0, 0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>
#map6 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, (((d1 * 2) + d5) + -1), (((d2 * 2) + d6) + -1), d3)>
#map7 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, d5, d6, d3)>
#layout = #tile.layout<#map, #pg.ints[1, 1, 2, 4, 8]>
#layout1 = #tile.layout<#map4, #pg.ints[1, 15, 15, 16]>
!tensor = tensor<16x4x1x1xf32, #layout>
!tensor1 = tensor<1x14x14x16xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x4x14x14xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x4x1x1xf32>>
    %2 = pg.constant #pg.data<seed 2 : tensor<1x16x1x1xf32>>
    %3 = tile.pack %1 : tensor<16x4x1x1xf32> -> !tensor
    %4 = tile.reduce ins(%0, %3 : tensor<1x4x14x14xf32>, !tensor) epilogue_inputs(%2 : tensor<1x16x1x1xf32>)
        domain [1, 14, 14, 16, 4, 1] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [#map3] product f32
        schedule <n_dim 3, n_vectors 2, m_dim 2, mr 6, kc 256, lanes 4> epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.addf %5, %6 : f32
      %8 = arith.constant 0.000000e+00 : f32
      %9 = arith.maximumf %7, %8 : f32
      tile.yield %9 : f32
    } -> !tensor1
    %10 = tile.view %4 : !tensor1 -> !tensor1
    %11 = tile.map ins(%10 : !tensor1) domain [1, 16, 14, 14] maps [#map5] {
    ^bb0(%12: f32):
      tile.yield %12 : f32
    } -> tensor<1x16x14x14xf32>
    %13 = pg.constant #pg.data<seed 3 : tensor<16x1x3x3xf32>>
    %14 = tile.map ins(%13 : tensor<16x1x3x3xf32>) domain [1, 3, 3, 16] maps [affine_map<(d0, d1, d2, d3) -> (d3, d0, d1, d2)>] {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<1x3x3x16xf32>
    %16 = tile.reduce ins(%10, %14 : !tensor1, tensor<1x3x3x16xf32>) domain [1, 7, 7, 16, 1, 3, 3] parallel 4 : i64
        maps [#map6, #map7] epilogue_maps [] product f32
        schedule <n_dim 3, n_vectors 1, m_dim 2, mr 7, kc 256, lanes 4> epilogue {
    ^bb0(%17: f32):
      tile.yield %17 : f32
    } -> tensor<1x7x7x16xf32>
    %18 = tile.view %16 : tensor<1x7x7x16xf32> -> tensor<1x1x7x7x16xf32>
    %19 = tile.map ins(%18 : tensor<1x1x7x7x16xf32>) domain [1, 16, 7, 7] maps [affine_map<(d0, d1, d2, d3) -> (0, 0, d2, d3, d1)>] {
    ^bb0(%20: f32):
      tile.yield %20 : f32
    } -> tensor<1x16x7x7xf32>
    pg.return [#pg.bytes<"v1">, #pg.bytes<"v2">], %11, %19 : tensor<1x16x14x14xf32>, tensor<1x16x7x7xf32>
  }
}
