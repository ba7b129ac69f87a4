// The weights are packed into panels as wide as the vectors.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be000000bf0000403f000000bf000080be0000803e00000000000080bf000080bf0000403f0000003f0000403f00000000" : tensor<3x8xf32>>
    %2 = tile.contract %0, %1 : tensor<4x3xf32>, tensor<3x8xf32> domain [4, 8, 3] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>] extra_maps [] finish {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<4x8xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<4x8xf32>
  }
}
// -----
