// A max pool after a relu can read zeros instead of -inf: every window has at least one element.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, (d1 + d4), (d2 + d5), d3)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<1x2x3x4xf32>):
    %1 = pg.constant #pg.data<"000000bf000080be000000000000803e0000003f000000bf000080be00000000" : tensor<4x2x1x1xf32>>
    %2 = pg.constant #pg.data<seed 1 : tensor<1x4x3x3xf32>>
    %3 = tile.reduce ins(%0, %1 : tensor<1x2x3x4xf32>, tensor<4x2x1x1xf32>) domain [1, 3, 4, 4, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      %5 = arith.constant 0.000000e+00 : f32
      %6 = arith.maximumf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<1x3x4x4xf32>
    %7 = tile.assemble(%3 : tensor<1x3x4x4xf32>) offsets [0, 1, 1, 0] steps [1, 1, 1, 1] fill 0xff800000 : f32 -> tensor<1x4x5x4xf32>
    %8 = tile.reduce ins(%7 : tensor<1x4x5x4xf32>) domain [1, 3, 4, 4, 2, 2] parallel 4 : i64 maps [#map2] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%9: f32, %10: f32):
      %11 = arith.maximumf %10, %9 : f32
      tile.yield %11 : f32
    } epilogue {
    ^bb0(%12: f32):
      tile.yield %12 : f32
    } -> tensor<1x3x4x4xf32>
    %13 = tile.reduce ins(%8, %2 : tensor<1x3x4x4xf32>, tensor<1x4x3x3xf32>) domain [1, 1, 2, 1, 3, 3, 4] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%14: f32):
      tile.yield %14 : f32
    } -> tensor<1x1x2x1xf32>
    %15 = tile.map ins(%13 : tensor<1x1x2x1xf32>) domain [1, 1, 1, 2] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%16: f32):
      tile.yield %16 : f32
    } -> tensor<1x1x1x2xf32>
    pg.return [#pg.bytes<"y">], %15 : tensor<1x1x1x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, ((d1 + d4) + -1), ((d2 + d5) + -1), d3)>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map5 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<1x2x3x4xf32>):
    %1 = pg.constant #pg.data<"000000bf000080be000000000000803e0000003f000000bf000080be00000000" : tensor<4x2x1x1xf32>>
    %2 = pg.constant #pg.data<seed 1 : tensor<1x4x3x3xf32>>
    %3 = tile.reduce ins(%0, %1 : tensor<1x2x3x4xf32>, tensor<4x2x1x1xf32>) domain [1, 3, 4, 4, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      %5 = arith.constant 0.000000e+00 : f32
      %6 = arith.maximumf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<1x3x4x4xf32, #tile.layout<#map2, #pg.ints[1, 4, 5, 4]>>
    %7 = tile.reduce ins(%3 : tensor<1x3x4x4xf32, #tile.layout<#map2, #pg.ints[1, 4, 5, 4]>>) domain [1, 3, 4, 4, 2, 2] parallel 4 : i64 maps [#map3] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%8: f32, %9: f32):
      %10 = arith.maximumf %9, %8 : f32
      tile.yield %10 : f32
    } epilogue {
    ^bb0(%11: f32):
      tile.yield %11 : f32
    } -> tensor<1x3x4x4xf32>
    %12 = tile.reduce ins(%7, %2 : tensor<1x3x4x4xf32>, tensor<1x4x3x3xf32>) domain [1, 1, 2, 1, 3, 3, 4] parallel 4 : i64 maps [#map4, #map5] epilogue_maps [] product f32 epilogue {
    ^bb0(%13: f32):
      tile.yield %13 : f32
    } -> tensor<1x1x2x1xf32>
    %14 = tile.map ins(%12 : tensor<1x1x2x1xf32>) domain [1, 1, 1, 2] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<1x1x1x2xf32>
    pg.return [#pg.bytes<"y">], %14 : tensor<1x1x1x2xf32>
  }
}
