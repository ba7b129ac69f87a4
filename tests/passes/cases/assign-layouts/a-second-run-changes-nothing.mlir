// Transposed weights are still weights: a second run finds the same layouts.
// -p assign-layouts,assign-layouts
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, (d3 + d5))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, 0, d5)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, d2, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x8x3xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<8x1x2xf32>>
    %2 = tile.reduce ins(%0, %1 : tensor<2x8x3xf32>, tensor<8x1x2xf32>) domain [2, 8, 1, 2, 1, 2] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<2x8x1x2xf32>
    %4 = tile.view %2 : tensor<2x8x1x2xf32> -> tensor<2x8x2xf32>
    %5 = pg.constant #pg.data<seed 2 : tensor<16x1x2xf32>>
    %6 = tile.assemble(%4 : tensor<2x8x2xf32>) offsets [0, 0, 1] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<2x8x3xf32>
    %7 = tile.view %5 : tensor<16x1x2xf32> -> tensor<8x2x1x2xf32>
    %8 = tile.reduce ins(%6, %7 : tensor<2x8x3xf32>, tensor<8x2x1x2xf32>) domain [2, 8, 2, 2, 1, 2] parallel 4 : i64 maps [#map, #map2] epilogue_maps [] product f32 epilogue {
    ^bb0(%9: f32):
      tile.yield %9 : f32
    } -> tensor<2x8x2x2xf32>
    %10 = tile.view %8 : tensor<2x8x2x2xf32> -> tensor<2x16x2xf32>
    pg.return [#pg.bytes<"v1">], %10 : tensor<2x16x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, (d2 + d5))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, d5, d3)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, (d1 + d5), d2)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, d5, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x8x3xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<8x1x2xf32>>
    %2 = tile.map ins(%1 : tensor<8x1x2xf32>) domain [1, 2, 8] maps [affine_map<(d0, d1, d2) -> (d2, d0, d1)>] {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<1x2x8xf32>
    %4 = tile.reduce ins(%0, %2 : tensor<2x8x3xf32>, tensor<1x2x8xf32>) domain [2, 1, 2, 8, 1, 2] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<2x1x2x8xf32>
    %6 = tile.view %4 : tensor<2x1x2x8xf32> -> tensor<2x2x8xf32>
    %7 = pg.constant #pg.data<seed 2 : tensor<16x1x2xf32>>
    %8 = tile.assemble(%6 : tensor<2x2x8xf32>) offsets [0, 1, 0] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<2x3x8xf32>
    %9 = tile.view %7 : tensor<16x1x2xf32> -> tensor<8x2x1x2xf32>
    %10 = tile.map ins(%9 : tensor<8x2x1x2xf32>) domain [2, 1, 2, 8] maps [affine_map<(d0, d1, d2, d3) -> (d3, d0, d1, d2)>] {
    ^bb0(%11: f32):
      tile.yield %11 : f32
    } -> tensor<2x1x2x8xf32>
    %12 = tile.reduce ins(%8, %10 : tensor<2x3x8xf32>, tensor<2x1x2x8xf32>) domain [2, 2, 8, 2, 1, 2] parallel 4 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%13: f32):
      tile.yield %13 : f32
    } -> tensor<2x2x8x2xf32>
    %14 = tile.view %12 : tensor<2x2x8x2xf32> -> tensor<2x2x16xf32>
    %15 = tile.map ins(%14 : tensor<2x2x16xf32>) domain [2, 16, 2] maps [affine_map<(d0, d1, d2) -> (d0, d2, d1)>] {
    ^bb0(%16: f32):
      tile.yield %16 : f32
    } -> tensor<2x16x2xf32>
    pg.return [#pg.bytes<"v1">], %15 : tensor<2x16x2xf32>
  }
}
