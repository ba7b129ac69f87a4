// Words are single elements for a mapping; a tile multiplies the two numbers in each of them.
// -p map-to-tiles{tiles=2}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4x2xi32>):
    %1 = pg.constant #pg.data<"01000200ffff0300040005000600ffff01000700080009000a000b000c000d00" : tensor<2x4xi32>>
    %2 = tile.reduce ins(%0, %1 : tensor<4x2xi32>, tensor<2x4xi32>) domain [4, 4, 2] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] dot "i16" i32 epilogue {
    ^bb0(%3: i32):
      tile.yield %3 : i32
    } -> tensor<4x4xi32>
    pg.return [#pg.bytes<"y">], %2 : tensor<4x4xi32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4x2xi32>):
    %1 = pg.constant #pg.data<"01000200ffff0300040005000600ffff01000700080009000a000b000c000d00" : tensor<2x4xi32>> {mapping = #tile.mapping<[2, 4] in [2, 4] at [0, 0]>}
    %2 = tile.reduce ins(%0, %1 : tensor<4x2xi32>, tensor<2x4xi32>) domain [4, 4, 2] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] dot "i16" i32 epilogue {
    ^bb0(%3: i32):
      tile.yield %3 : i32
    } {mapping = #tile.mapping<[4, 4, 2] in [4, 4, 2] at [0, 0, 0]>} -> tensor<4x4xi32>
    pg.return [#pg.bytes<"y">], %2 : tensor<4x4xi32>
  } {input_mappings = [#tile.mapping<[4, 2] in [4, 2] at [0, 0]>]}
}
