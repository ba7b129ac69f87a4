// exp(relu(x)) is one map.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.map ins(%0 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%2: f32):
      %3 = arith.constant 0.000000e+00 : f32
      %4 = arith.cmpf olt, %2, %3 : f32
      %5 = arith.select %4, %3, %2 : f32
      tile.yield %5 : f32
    } -> tensor<4xf32>
    %6 = tile.map ins(%1 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%7: f32):
      %8 = math.exp %7 : f32
      tile.yield %8 : f32
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"v1">], %6 : tensor<4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.map ins(%0 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%2: f32):
      %3 = arith.constant 0.000000e+00 : f32
      %4 = arith.cmpf olt, %2, %3 : f32
      %5 = arith.select %4, %3, %2 : f32
      %6 = math.exp %5 : f32
      tile.yield %6 : f32
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"v1">], %1 : tensor<4xf32>
  }
}
