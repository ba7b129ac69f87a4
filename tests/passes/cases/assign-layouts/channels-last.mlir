// Between convolutions, channels are the last axis; inputs and outputs keep their order.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d2 + d5), (d3 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, (d2 + d4), (d3 + d5))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<1x2x5x4xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<8x2x3x3xf32>>
    %2 = pg.constant #pg.data<seed 2 : tensor<2x8x1x1xf32>>
    %3 = tile.reduce ins(%0, %1 : tensor<1x2x5x4xf32>, tensor<8x2x3x3xf32>) domain [1, 8, 3, 2, 2, 3, 3] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      %5 = arith.constant 0.000000e+00 : f32
      %6 = arith.maximumf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<1x8x3x2xf32>
    %7 = tile.reduce ins(%3 : tensor<1x8x3x2xf32>) domain [1, 8, 2, 1, 2, 2] parallel 4 : i64 maps [#map2] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%8: f32, %9: f32):
      %10 = arith.maximumf %9, %8 : f32
      tile.yield %10 : f32
    } epilogue {
    ^bb0(%11: f32):
      tile.yield %11 : f32
    } -> tensor<1x8x2x1xf32>
    %12 = tile.reduce ins(%7, %2 : tensor<1x8x2x1xf32>, tensor<2x8x1x1xf32>) domain [1, 2, 2, 1, 8, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%13: f32):
      tile.yield %13 : f32
    } -> tensor<1x2x2x1xf32>
    pg.return [#pg.bytes<"y">], %12 : tensor<1x2x2x1xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, (d1 + d4), (d2 + d5), d3)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<1x2x5x4xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<8x2x3x3xf32>>
    %2 = pg.constant #pg.data<seed 2 : tensor<2x8x1x1xf32>>
    %3 = tile.reduce ins(%0, %1 : tensor<1x2x5x4xf32>, tensor<8x2x3x3xf32>) domain [1, 3, 2, 8, 2, 3, 3] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      %5 = arith.constant 0.000000e+00 : f32
      %6 = arith.maximumf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<1x3x2x8xf32>
    %7 = tile.reduce ins(%3 : tensor<1x3x2x8xf32>) domain [1, 2, 1, 8, 2, 2] parallel 4 : i64 maps [#map2] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%8: f32, %9: f32):
      %10 = arith.maximumf %9, %8 : f32
      tile.yield %10 : f32
    } epilogue {
    ^bb0(%11: f32):
      tile.yield %11 : f32
    } -> tensor<1x2x1x8xf32>
    %12 = tile.reduce ins(%7, %2 : tensor<1x2x1x8xf32>, tensor<2x8x1x1xf32>) domain [1, 2, 1, 2, 1, 1, 8] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%13: f32):
      tile.yield %13 : f32
    } -> tensor<1x2x1x2xf32>
    %14 = tile.map ins(%12 : tensor<1x2x1x2xf32>) domain [1, 2, 2, 1] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<1x2x2x1xf32>
    pg.return [#pg.bytes<"y">], %14 : tensor<1x2x2x1xf32>
  }
}
