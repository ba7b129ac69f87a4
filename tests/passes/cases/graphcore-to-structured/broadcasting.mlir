// Broadcast operands are read through index maps; nothing is copied.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%a: tensor<2x1x3xf32>, %b: tensor<4x1xf32>):
    %y = graphcore.add %a, %b : (tensor<2x1x3xf32>, tensor<4x1xf32>) -> tensor<2x4x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x4x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%a: tensor<2x1x3xf32>, %b: tensor<4x1xf32>):
    %y = tile.map ins(%a, %b : tensor<2x1x3xf32>, tensor<4x1xf32>) domain [2, 4, 3] maps [affine_map<(d0, d1, d2) -> (d0, 0, d2)>, affine_map<(d0, d1, d2) -> (d1, 0)>] {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<2x4x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x4x3xf32>
  }
}
