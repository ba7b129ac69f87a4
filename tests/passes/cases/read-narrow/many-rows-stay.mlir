// A weight that seven rows share stays widened before the product.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<7x6xf32>, %w: tensor<6x8xf16>):
    %0 = tile.map ins(%w : tensor<6x8xf16>) domain [6, 8] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%1: f16):
      %2 = arith.extf %1 : f16 to f32
      tile.yield %2 : f32
    } -> tensor<6x8xf32>
    %y = tile.reduce ins(%x, %0 : tensor<7x6xf32>, tensor<6x8xf32>) domain [7, 8, 6] parallel 2 : i64
        maps [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<7x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<7x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<7x6xf32>, %w: tensor<6x8xf16>):
    %0 = tile.map ins(%w : tensor<6x8xf16>) domain [6, 8] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%1: f16):
      %2 = arith.extf %1 : f16 to f32
      tile.yield %2 : f32
    } -> tensor<6x8xf32>
    %y = tile.reduce ins(%x, %0 : tensor<7x6xf32>, tensor<6x8xf32>) domain [7, 8, 6] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<7x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<7x8xf32>
  }
}
