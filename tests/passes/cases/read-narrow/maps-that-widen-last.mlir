// A map that permutes a factor and widens it last stores the narrow value.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<2x6xf32>, %w: tensor<8x6xi8>):
    %0 = tile.map ins(%w : tensor<8x6xi8>) domain [6, 8] maps [affine_map<(d0, d1) -> (d1, d0)>] {
    ^bb0(%1: i8):
      %2 = arith.constant 3 : i8
      %3 = arith.xori %1, %2 : i8
      %4 = arith.sitofp %3 : i8 to f32
      tile.yield %4 : f32
    } -> tensor<6x8xf32>
    %y = tile.reduce ins(%x, %0 : tensor<2x6xf32>, tensor<6x8xf32>) domain [2, 8, 6] parallel 2 : i64
        maps [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<2x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<2x6xf32>, %w: tensor<8x6xi8>):
    %0 = tile.map ins(%w : tensor<8x6xi8>) domain [6, 8] maps [affine_map<(d0, d1) -> (d1, d0)>] {
    ^bb0(%1: i8):
      %2 = arith.constant 3 : i8
      %3 = arith.xori %1, %2 : i8
      tile.yield %3 : i8
    } -> tensor<6x8xi8>
    %y = tile.reduce ins(%x, %0 : tensor<2x6xf32>, tensor<6x8xi8>) domain [2, 8, 6] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<2x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x8xf32>
  }
}
