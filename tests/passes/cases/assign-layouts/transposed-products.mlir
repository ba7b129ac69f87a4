// A product that is stored transposed has its channels last, whatever the order of its factor.
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d4, d1)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), (d3 + d6))>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x2x3x8xf32>):
    %0 = pg.constant #pg.data<seed 1 : tensor<8x8xf32>>
    %1 = pg.constant #pg.data<seed 2 : tensor<8x1x2x2xf32>>
    %2 = tile.map ins(%x : tensor<1x2x3x8xf32>) domain [1, 2, 3, 8] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] {
    ^bb0(%3: f32):
      %4 = arith.addf %3, %3 : f32
      tile.yield %4 : f32
    } -> tensor<1x2x3x8xf32>
    %5 = tile.reduce ins(%2, %0 : tensor<1x2x3x8xf32>, tensor<8x8xf32>) domain [1, 8, 2, 3, 8] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<1x8x2x3xf32>
    %7 = tile.reduce ins(%5, %1 : tensor<1x8x2x3xf32>, tensor<8x1x2x2xf32>) domain [1, 8, 1, 2, 1, 2, 2] parallel 4 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%8: f32):
      tile.yield %8 : f32
    } -> tensor<1x8x1x2xf32>
    pg.return [#pg.bytes<"y">], %7 : tensor<1x8x1x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d4, d3)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), (d3 + d6))>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d6, d4, d5, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x2x3x8xf32>):
    %0 = pg.constant #pg.data<seed 1 : tensor<8x8xf32>>
    %1 = pg.constant #pg.data<seed 2 : tensor<8x1x2x2xf32>>
    %2 = tile.map ins(%x : tensor<1x2x3x8xf32>) domain [1, 2, 3, 8] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] {
    ^bb0(%3: f32):
      %4 = arith.addf %3, %3 : f32
      tile.yield %4 : f32
    } -> tensor<1x2x3x8xf32>
    %5 = tile.reduce ins(%2, %0 : tensor<1x2x3x8xf32>, tensor<8x8xf32>) domain [1, 2, 3, 8, 8] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<1x2x3x8xf32>
    %7 = tile.map ins(%1 : tensor<8x1x2x2xf32>) domain [1, 2, 2, 8] maps [affine_map<(d0, d1, d2, d3) -> (d3, d0, d1, d2)>] {
    ^bb0(%8: f32):
      tile.yield %8 : f32
    } -> tensor<1x2x2x8xf32>
    %9 = tile.reduce ins(%5, %7 : tensor<1x2x3x8xf32>, tensor<1x2x2x8xf32>) domain [1, 1, 2, 8, 2, 2, 1] parallel 4 : i64 maps [#map2, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%10: f32):
      tile.yield %10 : f32
    } -> tensor<1x1x2x8xf32>
    %11 = tile.map ins(%9 : tensor<1x1x2x8xf32>) domain [1, 8, 1, 2] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%12: f32):
      tile.yield %12 : f32
    } -> tensor<1x8x1x2xf32>
    pg.return [#pg.bytes<"y">], %11 : tensor<1x8x1x2xf32>
  }
}
