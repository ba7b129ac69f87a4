// The loops of a window stay: their indices are added to those of rows and columns, so no operand can join them.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<6x8x4xf32>, %w: tensor<3x3x4x16xf32>):
    %y = tile.reduce ins(%x, %w : tensor<6x8x4xf32>, tensor<3x3x4x16xf32>) domain [4, 6, 16, 3, 3, 4] parallel 3 : i64
        maps [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0 + d3, d1 + d4, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, d5, d2)>]
        epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<4x6x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<4x6x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> ((d0 + d3), (d1 + d4), d5)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, d5, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<6x8x4xf32>, %w: tensor<3x3x4x16xf32>):
    %y = tile.reduce ins(%x, %w : tensor<6x8x4xf32>, tensor<3x3x4x16xf32>) domain [4, 6, 16, 3, 3, 4] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<4x6x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<4x6x16xf32>
  }
}
