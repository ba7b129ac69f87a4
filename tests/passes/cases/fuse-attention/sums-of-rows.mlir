// The sums of the rows join, too: the second product multiplies its results by their reciprocals.
#map = affine_map<(d0, d1, d2) -> (d0, (d1 floordiv 128), d2, (d1 mod 128))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#layout = #tile.layout<#map, #pg.ints[5, 4, 16, 128]>
!tensor = tensor<5x512x16xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"q">, #pg.bytes<"k">, #pg.bytes<"v">] {
  ^bb0(%0: tensor<5x512x16xf32>, %1: tensor<5x512x16xf32>, %2: tensor<5x512x16xf32>):
    %3 = tile.pack %1 : tensor<5x512x16xf32> -> !tensor
    %4 = pg.constant #pg.data<"0000803e" : tensor<f32>>
    %5 = tile.reduce ins(%0, %3 : tensor<5x512x16xf32>, !tensor) domain [5, 512, 512, 16] parallel 3 : i64
        maps [#map1, #map2] epilogue_maps [] product f32 schedule <n_dim 2, n_vectors 8, m_dim -1, mr 1, kc 256, lanes 16> epilogue {
    ^bb0(%6: f32):
      %7 = arith.constant 2.500000e-01 : f32
      %8 = arith.mulf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<5x512x512xf32>
    %9, %32 = tile.fused ins(%5 : tensor<5x512x512xf32>) domain [5, 512] steps [1, 1] {
    ^bb0(%10: tensor<5x512x512xf32>):
      %11 = tile.reduce ins(%10 : tensor<5x512x512xf32>) domain [5, 512, 512] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] epilogue_maps [] initial [0xff800000 : f32] {
      ^bb0(%12: f32, %13: f32):
        %14 = arith.maximumf %13, %12 : f32
        tile.yield %14 : f32
      } epilogue {
      ^bb0(%15: f32):
        tile.yield %15 : f32
      } -> tensor<5x512xf32>
      %16 = tile.map ins(%10, %11 : tensor<5x512x512xf32>, tensor<5x512xf32>) domain [5, 512, 512] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] {
      ^bb0(%17: f32, %18: f32):
        %19 = arith.subf %17, %18 : f32
        %20 = math.exp %19 : f32
        tile.yield %20 : f32
      } -> tensor<5x512x512xf32>
      %21 = tile.reduce ins(%16 : tensor<5x512x512xf32>) domain [5, 512, 512] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] epilogue_maps [] initial [0.000000e+00 : f32] {
      ^bb0(%22: f32, %23: f32):
        %24 = arith.addf %23, %22 : f32
        tile.yield %24 : f32
      } epilogue {
      ^bb0(%25: f32):
        %35 = arith.constant 1.000000e+00 : f32
        %36 = arith.divf %35, %25 : f32
        tile.yield %36 : f32
      } -> tensor<5x512xf32>
      tile.yield %16, %21 : tensor<5x512x512xf32>, tensor<5x512xf32>
    } -> tensor<5x512x512xf32>, tensor<5x512xf32>
    %10 = tile.reduce ins(%9, %2 : tensor<5x512x512xf32>, tensor<5x512x16xf32>)
        epilogue_inputs(%32 : tensor<5x512xf32>) domain [5, 512, 16, 512] parallel 3 : i64
        maps [#map1, #map3] epilogue_maps [affine_map<(d0, d1, d2) -> (d0, d1)>] product f32
        schedule <n_dim 2, n_vectors 1, m_dim 1, mr 28, kc 256, lanes 16, n_inner 1> epilogue {
    ^bb0(%11: f32, %33: f32):
      %34 = arith.mulf %11, %33 : f32
      tile.yield %34 : f32
    } -> tensor<5x512x16xf32>
    pg.return [#pg.bytes<"y">], %10 : tensor<5x512x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, (d1 floordiv 128), d2, (d1 mod 128))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#layout = #tile.layout<#map, #pg.ints[5, 4, 16, 128]>
!tensor = tensor<5x512x16xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"q">, #pg.bytes<"k">, #pg.bytes<"v">] {
  ^bb0(%0: tensor<5x512x16xf32>, %1: tensor<5x512x16xf32>, %2: tensor<5x512x16xf32>):
    %3 = tile.pack %1 : tensor<5x512x16xf32> -> !tensor
    %4 = pg.constant #pg.data<"0000803e" : tensor<f32>>
    %5 = tile.fused ins(%0, %3, %2 : tensor<5x512x16xf32>, !tensor, tensor<5x512x16xf32>) domain [5, 512] steps [1, 28] {
    ^bb0(%6: tensor<5x512x16xf32>, %7: !tensor, %8: tensor<5x512x16xf32>):
      %9 = tile.reduce ins(%6, %7 : tensor<5x512x16xf32>, !tensor) domain [5, 512, 512, 16] parallel 3 : i64
          maps [#map1, #map2] epilogue_maps [] product f32
          schedule <n_dim 2, n_vectors 8, m_dim -1, mr 1, kc 256, lanes 16> epilogue {
      ^bb0(%10: f32):
        %11 = arith.constant 2.500000e-01 : f32
        %12 = arith.mulf %10, %11 : f32
        tile.yield %12 : f32
      } -> tensor<5x512x512xf32>
      %13 = tile.reduce ins(%9 : tensor<5x512x512xf32>) domain [5, 512, 512] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] epilogue_maps [] initial [0xff800000 : f32] {
      ^bb0(%14: f32, %15: f32):
        %16 = arith.maximumf %15, %14 : f32
        tile.yield %16 : f32
      } epilogue {
      ^bb0(%17: f32):
        tile.yield %17 : f32
      } -> tensor<5x512xf32>
      %18 = tile.map ins(%9, %13 : tensor<5x512x512xf32>, tensor<5x512xf32>) domain [5, 512, 512] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, #map3] {
      ^bb0(%19: f32, %20: f32):
        %21 = arith.subf %19, %20 : f32
        %22 = math.exp %21 : f32
        tile.yield %22 : f32
      } -> tensor<5x512x512xf32>
      %23 = tile.reduce ins(%18 : tensor<5x512x512xf32>) domain [5, 512, 512] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] epilogue_maps [] initial [0.000000e+00 : f32] {
      ^bb0(%24: f32, %25: f32):
        %26 = arith.addf %25, %24 : f32
        tile.yield %26 : f32
      } epilogue {
      ^bb0(%27: f32):
        %28 = arith.constant 1.000000e+00 : f32
        %29 = arith.divf %28, %27 : f32
        tile.yield %29 : f32
      } -> tensor<5x512xf32>
      %30 = tile.reduce ins(%18, %8 : tensor<5x512x512xf32>, tensor<5x512x16xf32>)
          epilogue_inputs(%23 : tensor<5x512xf32>) domain [5, 512, 16, 512] parallel 3 : i64 maps [#map1, #map4]
          epilogue_maps [#map3] product f32
          schedule <n_dim 2, n_vectors 1, m_dim 1, mr 28, kc 256, lanes 16, n_inner 1> epilogue {
      ^bb0(%31: f32, %32: f32):
        %33 = arith.mulf %31, %32 : f32
        tile.yield %33 : f32
      } -> tensor<5x512x16xf32>
      tile.yield %30 : tensor<5x512x16xf32>
    } -> tensor<5x512x16xf32>
    pg.return [#pg.bytes<"y">], %5 : tensor<5x512x16xf32>
  }
}
