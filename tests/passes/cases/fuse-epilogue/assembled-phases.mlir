// A bias of assembled sums, such as the phases of a transposed convolution, goes into the epilogue of
// each piece; a value that differs between pieces does not.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"b">, #pg.bytes<"r">] {
  ^bb0(%x: tensor<3x4xf32>, %w: tensor<4x5xf32>, %b: tensor<5xf32>, %r: tensor<6x5xf32>):
    %0 = tile.reduce ins(%x, %w : tensor<3x4xf32>, tensor<4x5xf32>) domain [3, 5, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<3x5xf32>
    %2 = tile.reduce ins(%x, %w : tensor<3x4xf32>, tensor<4x5xf32>) domain [3, 5, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      %4 = arith.negf %3 : f32
      tile.yield %4 : f32
    } -> tensor<3x5xf32>
    %5 = tile.assemble(%0, %2 : tensor<3x5xf32>, tensor<3x5xf32>) offsets [0, 0, 1, 0] steps [2, 1, 2, 1] fill 0.000000e+00 : f32 -> tensor<6x5xf32>
    %y = tile.map ins(%5, %b : tensor<6x5xf32>, tensor<5xf32>) domain [6, 5] maps [#map2, #map3] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.addf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<6x5xf32>
    %z = tile.map ins(%y, %r : tensor<6x5xf32>, tensor<6x5xf32>) domain [6, 5] maps [#map2, #map2] {
    ^bb0(%9: f32, %10: f32):
      %11 = arith.mulf %9, %10 : f32
      tile.yield %11 : f32
    } -> tensor<6x5xf32>
    pg.return [#pg.bytes<"z">], %z : tensor<6x5xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"b">, #pg.bytes<"r">] {
  ^bb0(%x: tensor<3x4xf32>, %w: tensor<4x5xf32>, %b: tensor<5xf32>, %r: tensor<6x5xf32>):
    %0 = tile.reduce ins(%x, %w : tensor<3x4xf32>, tensor<4x5xf32>) epilogue_inputs(%b : tensor<5xf32>)
        domain [3, 5, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%1: f32, %2: f32):
      %3 = arith.addf %1, %2 : f32
      tile.yield %3 : f32
    } -> tensor<3x5xf32>
    %4 = tile.reduce ins(%x, %w : tensor<3x4xf32>, tensor<4x5xf32>) epilogue_inputs(%b : tensor<5xf32>)
        domain [3, 5, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.negf %5 : f32
      %8 = arith.addf %7, %6 : f32
      tile.yield %8 : f32
    } -> tensor<3x5xf32>
    %y = tile.assemble(%0, %4 : tensor<3x5xf32>, tensor<3x5xf32>) offsets [0, 0, 1, 0] steps [2, 1, 2, 1] fill 0.000000e+00 : f32 -> tensor<6x5xf32>
    %z = tile.map ins(%y, %r : tensor<6x5xf32>, tensor<6x5xf32>) domain [6, 5] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%9: f32, %10: f32):
      %11 = arith.mulf %9, %10 : f32
      tile.yield %11 : f32
    } -> tensor<6x5xf32>
    pg.return [#pg.bytes<"z">], %z : tensor<6x5xf32>
  }
}
