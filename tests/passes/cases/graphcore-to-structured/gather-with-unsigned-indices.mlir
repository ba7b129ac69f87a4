// Unsigned indices are never negative: one minimum clamps them to the table.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"i">] {
  ^bb0(%x: tensor<5x4xf32>, %i: tensor<3xui64>):
    %y = graphcore.gather %x, %i {axis = 0} : (tensor<5x4xf32>, tensor<3xui64>) -> tensor<3x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"i">] {
  ^bb0(%x: tensor<5x4xf32>, %i: tensor<3xui64>):
    %y = tile.map ins(%i : tensor<3xui64>) tables(%x : tensor<5x4xf32>) domain [3, 4] maps [affine_map<(d0, d1) -> (d0)>] {
    ^bb0(%0: ui64, %1: tensor<5x4xf32>):
      %2 = arith.bitcast %0 : ui64 to i64
      %3 = arith.constant 4 : i64
      %4 = arith.minui %2, %3 : i64
      %5 = arith.index_cast %4 : i64 to index
      %6 = tile.index 1 : i64
      %7 = tile.element %1[%5, %6] : tensor<5x4xf32> -> f32
      tile.yield %7 : f32
    } -> tensor<3x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x4xf32>
  }
}
