// Words of nibbles are unpacked at each read, for any number of rows: a loop runs over their halves.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<9x4xi32>, %w: tensor<2x8xi32>):
    %0 = tile.map ins(%w : tensor<2x8xi32>) domain [2, 2, 8] maps [#map] {
    ^bb0(%1: i32):
      %2 = tile.index 1 : i64
      %3 = arith.index_cast %2 : index to i32
      %4 = arith.constant 4 : i32
      %5 = arith.muli %3, %4 : i32
      %6 = arith.shrsi %1, %5 : i32
      %7 = arith.constant 252645135 : i32
      %8 = arith.andi %6, %7 : i32
      tile.yield %8 : i32
    } -> tensor<2x2x8xi32>
    %9 = tile.view %0 : tensor<2x2x8xi32> -> tensor<4x8xi32>
    %y = tile.reduce ins(%x, %9 : tensor<9x4xi32>, tensor<4x8xi32>) domain [9, 8, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] dot "i8u8" i32 epilogue {
    ^bb0(%10: i32):
      tile.yield %10 : i32
    } -> tensor<9x8xi32>
    pg.return [#pg.bytes<"y">], %y : tensor<9x8xi32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, ((d2 * 2) + d3))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<9x4xi32>, %w: tensor<2x8xi32>):
    %y = tile.reduce ins(%x, %w : tensor<9x4xi32>, tensor<2x8xi32>) domain [9, 8, 2, 2] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product [0 : i32] {
    ^bb0(%0: i32, %1: i32, %2: i32):
      %3 = tile.index 3 : i64
      %4 = arith.index_cast %3 : index to i32
      %5 = arith.constant 4 : i32
      %6 = arith.muli %4, %5 : i32
      %7 = arith.shrsi %1, %6 : i32
      %8 = arith.constant 252645135 : i32
      %9 = arith.andi %7, %8 : i32
      %10 = tile.dot "i8u8" %0, %9, %2 : i32 -> i32
      tile.yield %10 : i32
    } epilogue {
    ^bb0(%11: i32):
      tile.yield %11 : i32
    } -> tensor<9x8xi32>
    pg.return [#pg.bytes<"y">], %y : tensor<9x8xi32>
  }
}
