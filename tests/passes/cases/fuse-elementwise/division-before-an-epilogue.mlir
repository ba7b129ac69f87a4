// One division a row: an epilogue would repeat it for each vector, so the product does not take it from the sums.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"e">, #pg.bytes<"v">, #pg.bytes<"t">] {
  ^bb0(%e: tensor<6x8xf32>, %v: tensor<8x32xf32>, %t: tensor<6x1xf32>):
    %y = tile.reduce ins(%e, %v : tensor<6x8xf32>, tensor<8x32xf32>) domain [6, 32, 8] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<6x32xf32>
    %r = tile.map ins(%t : tensor<6x1xf32>) domain [6, 1] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%1: f32):
      %2 = arith.constant 1.000000e+00 : f32
      %3 = arith.divf %2, %1 : f32
      tile.yield %3 : f32
    } -> tensor<6x1xf32>
    %h = tile.map ins(%r : tensor<6x1xf32>) domain [6, 1] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%4: f32):
      %5 = arith.constant 5.000000e-01 : f32
      %6 = arith.mulf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<6x1xf32>
    %z = tile.map ins(%y, %h : tensor<6x32xf32>, tensor<6x1xf32>) domain [6, 32] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>] {
    ^bb0(%7: f32, %8: f32):
      %9 = arith.mulf %7, %8 : f32
      tile.yield %9 : f32
    } -> tensor<6x32xf32>
    pg.return [#pg.bytes<"z">], %z : tensor<6x32xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"e">, #pg.bytes<"v">, #pg.bytes<"t">] {
  ^bb0(%e: tensor<6x8xf32>, %v: tensor<8x32xf32>, %t: tensor<6x1xf32>):
    %y = tile.reduce ins(%e, %v : tensor<6x8xf32>, tensor<8x32xf32>) domain [6, 32, 8] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<6x32xf32>
    %h = tile.map ins(%t : tensor<6x1xf32>) domain [6, 1] maps [affine_map<(d0, d1) -> (d0, 0)>] {
    ^bb0(%1: f32):
      %2 = arith.constant 1.000000e+00 : f32
      %3 = arith.divf %2, %1 : f32
      %4 = arith.constant 5.000000e-01 : f32
      %5 = arith.mulf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<6x1xf32>
    %z = tile.map ins(%y, %h : tensor<6x32xf32>, tensor<6x1xf32>) domain [6, 32] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.mulf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<6x32xf32>
    pg.return [#pg.bytes<"z">], %z : tensor<6x32xf32>
  }
}
