// The merged axis of a view ends at five times the size.
// -p bind-sizes
builtin.module attributes {sizes = [#pg.size<"N" 1 to 7 inputs ("x" axis 0 times 1) outputs ()>]} {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<7x5x2xf32>):
    %v = tile.view %x : tensor<7x5x2xf32> -> tensor<35x2xf32>
    %y = tile.map ins(%v : tensor<35x2xf32>) domain [35, 2] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%0: f32):
      %1 = math.exp %0 : f32
      tile.yield %1 : f32
    } -> tensor<35x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<35x2xf32>
  }
}
// -----
builtin.module attributes {sizes = [#pg.size<"N" 1 to 7 inputs ("x" axis 0 times 1) outputs ("y" axis 0 times 5)>]} {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"N">] {
  ^bb0(%x: tensor<7x5x2xf32>, %0: tensor<i64>):
    %v = tile.view %x : tensor<7x5x2xf32> -> tensor<35x2xf32>
    %y = tile.map ins(%v : tensor<35x2xf32>) domain [35, 2] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%1: f32):
      %2 = math.exp %1 : f32
      tile.yield %2 : f32
    } {running = #tile.running<loop 0 to 5 of size 0>} -> tensor<35x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<35x2xf32>
  }
}
