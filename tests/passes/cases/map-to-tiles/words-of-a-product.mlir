// Words are numbers to a mapping, and still hold two each when a tile multiplies them.
// -p map-to-tiles{tiles=4}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<16x8xi32>, %1: tensor<8x12xi32>):
    %2 = tile.contract %0, %1 : tensor<16x8xi32>, tensor<8x12xi32> domain [16, 12, 8] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] words "i16" epilogue {
    ^bb0(%3: i32):
      tile.yield %3 : i32
    } -> tensor<16x12xi32>
    pg.return [#pg.bytes<"y">], %2 : tensor<16x12xi32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<16x8xi32>, %1: tensor<8x12xi32>):
    %2 = tile.contract %0, %1 : tensor<16x8xi32>, tensor<8x12xi32> domain [16, 12, 8] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] words "i16" epilogue {
    ^bb0(%3: i32):
      tile.yield %3 : i32
    } {mapping = #tile.mapping<[16, 12, 8] in [8, 6, 8] at [2, 1, 0]>} -> tensor<16x12xi32>
    pg.return [#pg.bytes<"y">], %2 : tensor<16x12xi32>
  } {input_mappings = [#tile.mapping<[16, 8] in [8, 8] at [2, 0], runs of 32 at [2, 1]>, #tile.mapping<[8, 12] in [8, 6] at [0, 1], runs of 24 at [2, 2]>]}
}
