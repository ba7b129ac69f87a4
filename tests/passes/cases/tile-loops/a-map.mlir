// Whole vectors, then what is left over.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<6xf32>):
    %1 = tile.map ins(%0 : tensor<6xf32>) domain [6] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%2: f32):
      %3 = arith.constant 0.000000e+00 : f32
      %4 = arith.cmpf olt, %2, %3 : f32
      %5 = arith.select %4, %3, %2 : f32
      tile.yield %5 : f32
    } -> tensor<6xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<6xf32>
  }
}
// -----
