// An axis of two elements per size is split: the loop over its half is in the middle, and ends at the size.
// A second size is bound independently.
// -p bind-sizes
builtin.module attributes {sizes = [#pg.size<"N" 1 to 3 inputs ("x" axis 0 times 2) outputs ()>, #pg.size<"M%" 1 to 5 inputs ("z" axis 0 times 1) outputs ()>]} {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"z">] {
  ^bb0(%x: tensor<6x4xf32>, %z: tensor<5xf32>):
    %y = tile.map ins(%x : tensor<6x4xf32>) domain [4, 3, 2] maps [affine_map<(d0, d1, d2) -> (((d1 * 2) + d2), d0)>] {
    ^bb0(%0: f32):
      %1 = math.exp %0 : f32
      tile.yield %1 : f32
    } -> tensor<4x3x2xf32>
    %w = tile.map ins(%z : tensor<5xf32>) domain [5] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%2: f32):
      %3 = arith.negf %2 : f32
      tile.yield %3 : f32
    } -> tensor<5xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"w">], %y, %w : tensor<4x3x2xf32>, tensor<5xf32>
  }
}
// -----
builtin.module attributes {sizes = [#pg.size<"N" 1 to 3 inputs ("x" axis 0 times 2) outputs ("y" axis 1 times 1)>, #pg.size<"M%25" 1 to 5 inputs ("z" axis 0 times 1) outputs ("w" axis 0 times 1)>]} {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"z">, #pg.bytes<"N">, #pg.bytes<"M%25">] {
  ^bb0(%x: tensor<6x4xf32>, %z: tensor<5xf32>, %0: tensor<i64>, %1: tensor<i64>):
    %y = tile.map ins(%x : tensor<6x4xf32>) domain [4, 3, 2] maps [affine_map<(d0, d1, d2) -> (((d1 * 2) + d2), d0)>] {
    ^bb0(%2: f32):
      %3 = math.exp %2 : f32
      tile.yield %3 : f32
    } {running = #tile.running<loop 1 to 1 of size 0>} -> tensor<4x3x2xf32>
    %w = tile.map ins(%z : tensor<5xf32>) domain [5] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%4: f32):
      %5 = arith.negf %4 : f32
      tile.yield %5 : f32
    } {running = #tile.running<loop 0 to 1 of size 1>} -> tensor<5xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"w">], %y, %w : tensor<4x3x2xf32>, tensor<5xf32>
  }
}
