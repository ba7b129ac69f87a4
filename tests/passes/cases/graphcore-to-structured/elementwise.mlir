// An elementwise operation is a map.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f" : tensor<3xf32>>
    %2 = graphcore.add %0, %1 : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<2x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f" : tensor<3xf32>>
    %2 = tile.map ins(%0, %1 : tensor<2x3xf32>, tensor<3xf32>) domain [2, 3] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>] {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.addf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<2x3xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<2x3xf32>
  }
}
