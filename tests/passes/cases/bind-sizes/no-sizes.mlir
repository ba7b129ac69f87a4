// A module without sizes stays unchanged.
// -p bind-sizes
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<7xf32>):
    %y = tile.map ins(%x : tensor<7xf32>) domain [7] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%0: f32):
      %1 = arith.negf %0 : f32
      tile.yield %1 : f32
    } -> tensor<7xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<7xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<7xf32>):
    %y = tile.map ins(%x : tensor<7xf32>) domain [7] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%0: f32):
      %1 = arith.negf %0 : f32
      tile.yield %1 : f32
    } -> tensor<7xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<7xf32>
  }
}
