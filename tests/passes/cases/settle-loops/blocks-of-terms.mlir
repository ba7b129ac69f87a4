// Loops over pixels are joined, and those over blocks of terms; a loop over blocks and one in a block stay two. The added
// operand has the loops over blocks, too.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"s">] {
  ^bb0(%x: tensor<5x7x2x3x4xi32>, %w: tensor<2x3x4x24xi32>, %s: tensor<2x3x24xi32>):
    %y = tile.reduce ins(%x, %w : tensor<5x7x2x3x4xi32>, tensor<2x3x4x24xi32>) block_inputs(%s : tensor<2x3x24xi32>)
        domain [5, 7, 24, 2, 3, 4] parallel 3 : i64
        maps [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d3, d4, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, d5, d2)>]
        epilogue_maps [] product i32 epilogue {
    ^bb0(%3: i32):
      tile.yield %3 : i32
    } block {
    ^bb0(%0: i32, %1: i32):
      %2 = arith.muli %0, %1 : i32
      tile.yield %2 : i32
    } loops 2 : i64 block_maps [affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d2)>] -> tensor<5x7x24xi32>
    pg.return [#pg.bytes<"y">], %y : tensor<5x7x24xi32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d2, d3, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"s">] {
  ^bb0(%x: tensor<5x7x2x3x4xi32>, %w: tensor<2x3x4x24xi32>, %s: tensor<2x3x24xi32>):
    %0 = tile.view %x : tensor<5x7x2x3x4xi32> -> tensor<35x6x4xi32>
    %1 = tile.view %w : tensor<2x3x4x24xi32> -> tensor<6x4x24xi32>
    %2 = tile.view %s : tensor<2x3x24xi32> -> tensor<6x24xi32>
    %3 = tile.reduce ins(%0, %1 : tensor<35x6x4xi32>, tensor<6x4x24xi32>) block_inputs(%2 : tensor<6x24xi32>)
        domain [35, 24, 6, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product i32 epilogue {
    ^bb0(%4: i32):
      tile.yield %4 : i32
    } block {
    ^bb0(%5: i32, %6: i32):
      %7 = arith.muli %5, %6 : i32
      tile.yield %7 : i32
    } loops 1 : i64 block_maps [affine_map<(d0, d1, d2) -> (d2, d1)>] -> tensor<35x24xi32>
    %y = tile.view %3 : tensor<35x24xi32> -> tensor<5x7x24xi32>
    pg.return [#pg.bytes<"y">], %y : tensor<5x7x24xi32>
  }
}
