// Even the image of one panel of channels is larger than the cache: a few rows of the second convolution
// are computed at a time, after the rows of the first that they read.
#map = affine_map<(d0, d1, d2, d3) -> (d2, d3, (d0 floordiv 16), d1, (d0 mod 16))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, d4, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, 0, 0)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, d3, 0, 0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map5 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, (((d1 * 2) + d5) + -1), (((d2 * 2) + d6) + -1), d3)>
#map6 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, d5, d6, d3)>
#layout = #tile.layout<#map, #pg.ints[1, 1, 1, 4, 16]>
#layout1 = #tile.layout<#map4, #pg.ints[1, 161, 161, 16]>
!tensor = tensor<16x4x1x1xf32, #layout>
!tensor1 = tensor<1x160x160x16xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x4x160x160xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x4x1x1xf32>>
    %2 = pg.constant #pg.data<seed 2 : tensor<1x16x1x1xf32>>
    %3 = tile.pack %1 : tensor<16x4x1x1xf32> -> !tensor
    %4 = tile.reduce ins(%0, %3 : tensor<1x4x160x160xf32>, !tensor) epilogue_inputs(%2 : tensor<1x16x1x1xf32>)
        domain [1, 160, 160, 16, 4, 1] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [#map3] product f32
        schedule <n_dim 3, n_vectors 4, m_dim 2, mr 2, kc 256, lanes 4, n_inner 1> epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.addf %5, %6 : f32
      %8 = arith.constant 0.000000e+00 : f32
      %9 = arith.maximumf %7, %8 : f32
      tile.yield %9 : f32
    } -> !tensor1
    %10 = tile.view %4 : !tensor1 -> !tensor1
    %11 = pg.constant #pg.data<seed 3 : tensor<16x1x3x3xf32>>
    %12 = tile.map ins(%11 : tensor<16x1x3x3xf32>) domain [1, 3, 3, 16] maps [affine_map<(d0, d1, d2, d3) -> (d3, d0, d1, d2)>] {
    ^bb0(%13: f32):
      tile.yield %13 : f32
    } -> tensor<1x3x3x16xf32>
    %14 = tile.reduce ins(%10, %12 : !tensor1, tensor<1x3x3x16xf32>) domain [1, 80, 80, 16, 1, 3, 3] parallel 4 : i64
        maps [#map5, #map6] epilogue_maps [] product f32
        schedule <n_dim 3, n_vectors 1, m_dim 2, mr 6, kc 256, lanes 4, n_inner 1, window_panels 4> epilogue {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<1x80x80x16xf32>
    %16 = tile.view %14 : tensor<1x80x80x16xf32> -> tensor<1x1x80x80x16xf32>
    %17 = tile.map ins(%16 : tensor<1x1x80x80x16xf32>) domain [1, 16, 80, 80] maps [affine_map<(d0, d1, d2, d3) -> (0, 0, d2, d3, d1)>] {
    ^bb0(%18: f32):
      tile.yield %18 : f32
    } -> tensor<1x16x80x80xf32>
    pg.return [#pg.bytes<"v2">], %17 : tensor<1x16x80x80xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d2, d3, (d0 floordiv 16), d1, (d0 mod 16))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, d4, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, 0, 0)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, d3, 0, 0)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map5 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, (((d1 * 2) + d5) + -1), (((d2 * 2) + d6) + -1), d3)>
#map6 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, d5, d6, d3)>
#layout = #tile.layout<#map, #pg.ints[1, 1, 1, 4, 16]>
#layout1 = #tile.layout<#map4, #pg.ints[1, 161, 161, 16]>
!tensor = tensor<16x4x1x1xf32, #layout>
!tensor1 = tensor<1x160x160x16xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<1x4x160x160xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x4x1x1xf32>>
    %2 = pg.constant #pg.data<seed 2 : tensor<1x16x1x1xf32>>
    %3 = tile.pack %1 : tensor<16x4x1x1xf32> -> !tensor
    %4 = pg.constant #pg.data<seed 3 : tensor<16x1x3x3xf32>>
    %5 = tile.map ins(%4 : tensor<16x1x3x3xf32>) domain [1, 3, 3, 16] maps [affine_map<(d0, d1, d2, d3) -> (d3, d0, d1, d2)>] {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<1x3x3x16xf32>
    %7 = tile.fused ins(%0, %3, %2, %5 : tensor<1x4x160x160xf32>, !tensor, tensor<1x16x1x1xf32>, tensor<1x3x3x16xf32>)
        domain [16, 80] steps [16, 4] loops [#pg.ints[3, 1], #pg.ints[3, 1]] splits 1 : i64 {
    ^bb0(%8: tensor<1x4x160x160xf32>, %9: !tensor, %10: tensor<1x16x1x1xf32>, %11: tensor<1x3x3x16xf32>):
      %12 = tile.reduce ins(%8, %9 : tensor<1x4x160x160xf32>, !tensor) epilogue_inputs(%10 : tensor<1x16x1x1xf32>)
          domain [1, 160, 160, 16, 4, 1] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [#map3] product f32
          schedule <n_dim 3, n_vectors 4, m_dim 2, mr 2, kc 256, lanes 4, n_inner 1> epilogue {
      ^bb0(%13: f32, %14: f32):
        %15 = arith.addf %13, %14 : f32
        %16 = arith.constant 0.000000e+00 : f32
        %17 = arith.maximumf %15, %16 : f32
        tile.yield %17 : f32
      } -> !tensor1
      %18 = tile.reduce ins(%12, %11 : !tensor1, tensor<1x3x3x16xf32>) domain [1, 80, 80, 16, 1, 3, 3] parallel 4 : i64
          maps [#map5, #map6] epilogue_maps [] product f32
          schedule <n_dim 3, n_vectors 1, m_dim 2, mr 6, kc 256, lanes 4, n_inner 1, window_panels 4> epilogue {
      ^bb0(%19: f32):
        tile.yield %19 : f32
      } -> tensor<1x80x80x16xf32>
      tile.yield %18 : tensor<1x80x80x16xf32>
    } -> tensor<1x80x80x16xf32>
    %8 = tile.view %7 : tensor<1x80x80x16xf32> -> tensor<1x1x80x80x16xf32>
    %9 = tile.map ins(%8 : tensor<1x1x80x80x16xf32>) domain [1, 16, 80, 80] maps [affine_map<(d0, d1, d2, d3) -> (0, 0, d2, d3, d1)>] {
    ^bb0(%10: f32):
      tile.yield %10 : f32
    } -> tensor<1x16x80x80xf32>
    pg.return [#pg.bytes<"v2">], %9 : tensor<1x16x80x80xf32>
  }
}
