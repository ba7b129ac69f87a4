// Negative indices count from the end, and all indices are clamped to the axis.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"data">, #pg.bytes<"indices">] {
  ^bb0(%data: tensor<2x5x3xf32>, %indices: tensor<4xi32>):
    %y = graphcore.gather %data, %indices {axis = 1} : (tensor<2x5x3xf32>, tensor<4xi32>) -> tensor<2x4x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x4x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"data">, #pg.bytes<"indices">] {
  ^bb0(%data: tensor<2x5x3xf32>, %indices: tensor<4xi32>):
    %y = tile.map ins(%indices : tensor<4xi32>) tables(%data : tensor<2x5x3xf32>) domain [2, 4, 3] maps [affine_map<(d0, d1, d2) -> (d1)>] {
    ^bb0(%0: i32, %1: tensor<2x5x3xf32>):
      %2 = arith.extsi %0 : i32 to i64
      %3 = arith.constant 0 : i64
      %4 = arith.constant 5 : i64
      %5 = arith.addi %2, %4 : i64
      %6 = arith.cmpi slt, %2, %3 : i64
      %7 = arith.select %6, %5, %2 : i64
      %8 = arith.constant 4 : i64
      %9 = arith.maxsi %7, %3 : i64
      %10 = arith.minsi %9, %8 : i64
      %11 = arith.index_cast %10 : i64 to index
      %12 = tile.index 0 : i64
      %13 = tile.index 2 : i64
      %14 = tile.element %1[%12, %11, %13] : tensor<2x5x3xf32> -> f32
      tile.yield %14 : f32
    } -> tensor<2x4x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x4x3xf32>
  }
}
