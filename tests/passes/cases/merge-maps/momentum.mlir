// The state of an optimizer and its weight become results of one map. Readers of other elements stay, and so do readers after these.
#map = affine_map<(d0, d1) -> (d0, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"g">] {
  ^bb0(%2: tensor<4x4xf32>):
    %0 = pg.variable #pg.bytes<"m"> = #pg.data<seed 1 : tensor<4x4xf32>>
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<seed 2 : tensor<4x4xf32>>
    %3 = tile.map ins(%0, %2 : tensor<4x4xf32>, tensor<4x4xf32>) domain [4, 4] maps [#map, #map] {
    ^bb0(%4: f32, %5: f32):
      %6 = arith.mulf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<4x4xf32>
    %7 = tile.map ins(%1, %3, %2 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) domain [4, 4] maps [#map, #map, #map] {
    ^bb0(%8: f32, %9: f32, %10: f32):
      %11 = arith.mulf %9, %10 : f32
      %12 = arith.subf %8, %11 : f32
      tile.yield %12 : f32
    } -> tensor<4x4xf32>
    %13 = tile.map ins(%3, %2 : tensor<4x4xf32>, tensor<4x4xf32>) domain [4, 4] maps [affine_map<(d0, d1) -> (d1, d0)>, #map] {
    ^bb0(%14: f32, %15: f32):
      %16 = arith.addf %14, %15 : f32
      tile.yield %16 : f32
    } -> tensor<4x4xf32>
    %17 = tile.map ins(%3, %1 : tensor<4x4xf32>, tensor<4x4xf32>) domain [4, 4] maps [#map, #map] {
    ^bb0(%18: f32, %19: f32):
      %20 = arith.addf %18, %19 : f32
      tile.yield %20 : f32
    } -> tensor<4x4xf32>
    pg.update <"m">, %3 : tensor<4x4xf32>
    pg.update <"w">, %7 : tensor<4x4xf32>
    pg.return [#pg.bytes<"turned">, #pg.bytes<"late">], %13, %17 : tensor<4x4xf32>, tensor<4x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1) -> (d0, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"g">] {
  ^bb0(%0: tensor<4x4xf32>):
    %1 = pg.variable #pg.bytes<"m"> = #pg.data<seed 1 : tensor<4x4xf32>>
    %2 = pg.variable #pg.bytes<"w"> = #pg.data<seed 2 : tensor<4x4xf32>>
    %3, %4 = tile.map ins(%1, %0, %2 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) domain [4, 4] maps [#map, #map, #map] {
    ^bb0(%5: f32, %6: f32, %7: f32):
      %8 = arith.mulf %5, %6 : f32
      %9 = arith.mulf %8, %6 : f32
      %10 = arith.subf %7, %9 : f32
      tile.yield %8, %10 : f32, f32
    } -> tensor<4x4xf32>, tensor<4x4xf32>
    %11 = tile.map ins(%3, %0 : tensor<4x4xf32>, tensor<4x4xf32>) domain [4, 4] maps [affine_map<(d0, d1) -> (d1, d0)>, #map] {
    ^bb0(%12: f32, %13: f32):
      %14 = arith.addf %12, %13 : f32
      tile.yield %14 : f32
    } -> tensor<4x4xf32>
    %15 = tile.map ins(%3, %2 : tensor<4x4xf32>, tensor<4x4xf32>) domain [4, 4] maps [#map, #map] {
    ^bb0(%16: f32, %17: f32):
      %18 = arith.addf %16, %17 : f32
      tile.yield %18 : f32
    } -> tensor<4x4xf32>
    pg.update <"m">, %3 : tensor<4x4xf32>
    pg.update <"w">, %4 : tensor<4x4xf32>
    pg.return [#pg.bytes<"turned">, #pg.bytes<"late">], %11, %15 : tensor<4x4xf32>, tensor<4x4xf32>
  }
}
