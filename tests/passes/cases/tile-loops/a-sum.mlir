// Sums along rows.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x6xf32>):
    %1 = tile.reduce ins(%0 : tensor<2x6xf32>) domain [2, 6] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] extra_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.addf %3, %2 : f32
      tile.yield %4 : f32
    } finish {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<2xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<2xf32>
  }
}
// -----
