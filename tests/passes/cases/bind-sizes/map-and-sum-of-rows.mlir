// Loops over rows of a map and of sums end at the size; the loops inside the rows stay.
// -p bind-sizes
#map = affine_map<(d0, d1) -> (d0, d1)>
builtin.module attributes {sizes = [#pg.size<"N" 1 to 7 inputs ("x" axis 0 times 1) outputs ()>]} {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<7x6xf32>):
    %h = tile.map ins(%x : tensor<7x6xf32>) domain [7, 6] maps [#map] {
    ^bb0(%0: f32):
      %1 = arith.mulf %0, %0 : f32
      tile.yield %1 : f32
    } -> tensor<7x6xf32>
    %y = tile.reduce ins(%h : tensor<7x6xf32>) domain [7, 6] parallel 1 : i64 maps [#map] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.addf %3, %2 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<7xf32>
    pg.return [#pg.bytes<"h">, #pg.bytes<"y">], %h, %y : tensor<7x6xf32>, tensor<7xf32>
  }
}
// -----
builtin.module attributes {sizes = [#pg.size<"N" 1 to 7 inputs ("x" axis 0 times 1) outputs ("h" axis 0 times 1, "y" axis 0 times 1)>]} {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"N">] {
  ^bb0(%x: tensor<7x6xf32>, %0: tensor<i64>):
    %h = tile.map ins(%x : tensor<7x6xf32>) domain [7, 6] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%1: f32):
      %2 = arith.mulf %1, %1 : f32
      tile.yield %2 : f32
    } {running = #tile.running<loop 0 to 1 of size 0>} -> tensor<7x6xf32>
    %y = tile.reduce ins(%h : tensor<7x6xf32>) domain [7, 6] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.addf %4, %3 : f32
      tile.yield %5 : f32
    } epilogue {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } {running = #tile.running<loop 0 to 1 of size 0>} -> tensor<7xf32>
    pg.return [#pg.bytes<"h">, #pg.bytes<"y">], %h, %y : tensor<7x6xf32>, tensor<7xf32>
  }
}
