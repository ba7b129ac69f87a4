// A matmul is divided along its rows and columns; elementwise operations after it are on the same tiles.
// -p map-to-tiles{tiles=4}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<64x32xf32>, %1: tensor<32x48xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<64x32xf32>, tensor<32x48xf32>) domain [64, 48, 32] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<64x48xf32>
    %4 = tile.map ins(%2 : tensor<64x48xf32>) domain [64, 48] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%5: f32):
      %6 = math.exp %5 : f32
      tile.yield %6 : f32
    } -> tensor<64x48xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<64x48xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<64x32xf32>, %1: tensor<32x48xf32>):
    %2 = tile.reduce ins(%0, %1 : tensor<64x32xf32>, tensor<32x48xf32>) domain [64, 48, 32] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } {mapping = #tile.mapping<[64, 48, 32] in [32, 24, 32] at [2, 1, 0]>} -> tensor<64x48xf32>
    %4 = tile.map ins(%2 : tensor<64x48xf32>) domain [64, 48] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%5: f32):
      %6 = math.exp %5 : f32
      tile.yield %6 : f32
    } {mapping = #tile.mapping<[64, 48] in [32, 24] at [2, 1]>} -> tensor<64x48xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<64x48xf32>
  } {input_mappings = [#tile.mapping<[64, 32] in [32, 32] at [2, 0], runs of 512 at [2, 1]>, #tile.mapping<[32, 48] in [32, 24] at [0, 1], runs of 384 at [2, 2]>]}
}
