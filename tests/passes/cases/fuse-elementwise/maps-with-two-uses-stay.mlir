// A value with two readers is computed once: it stays a separate map.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.map ins(%0 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%2: f32):
      %3 = math.exp %2 : f32
      tile.yield %3 : f32
    } -> tensor<4xf32>
    %4 = tile.map ins(%1 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%5: f32):
      %6 = arith.constant 0.000000e+00 : f32
      %7 = arith.cmpf olt, %5, %6 : f32
      %8 = arith.select %7, %6, %5 : f32
      tile.yield %8 : f32
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %1, %4 : tensor<4xf32>, tensor<4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.map ins(%0 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%2: f32):
      %3 = math.exp %2 : f32
      tile.yield %3 : f32
    } -> tensor<4xf32>
    %4 = tile.map ins(%1 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%5: f32):
      %6 = arith.constant 0.000000e+00 : f32
      %7 = arith.cmpf olt, %5, %6 : f32
      %8 = arith.select %7, %6, %5 : f32
      tile.yield %8 : f32
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %1, %4 : tensor<4xf32>, tensor<4xf32>
  }
}
