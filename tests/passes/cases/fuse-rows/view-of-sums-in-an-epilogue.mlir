// The epilogue of a product reads the sums of rows without the view between them, which would keep them out of a fusion.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d0, 0)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"e">, #pg.bytes<"v">] {
  ^bb0(%e: tensor<6x8xf32>, %v: tensor<8x4xf32>):
    %t = tile.reduce ins(%e : tensor<6x8xf32>) domain [6, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %1, %0 : f32
      tile.yield %2 : f32
    } epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<6xf32>
    %r = tile.view %t : tensor<6xf32> -> tensor<6x1xf32>
    %y = tile.reduce ins(%e, %v : tensor<6x8xf32>, tensor<8x4xf32>) epilogue_inputs(%r : tensor<6x1xf32>)
        domain [6, 4, 8] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%4: f32, %5: f32):
      %6 = arith.mulf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<6x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<6x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d0)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"e">, #pg.bytes<"v">] {
  ^bb0(%e: tensor<6x8xf32>, %v: tensor<8x4xf32>):
    %t = tile.reduce ins(%e : tensor<6x8xf32>) domain [6, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %1, %0 : f32
      tile.yield %2 : f32
    } epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<6xf32>
    %y = tile.reduce ins(%e, %v : tensor<6x8xf32>, tensor<8x4xf32>) epilogue_inputs(%t : tensor<6xf32>)
        domain [6, 4, 8] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%4: f32, %5: f32):
      %6 = arith.mulf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<6x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<6x4xf32>
  }
}
