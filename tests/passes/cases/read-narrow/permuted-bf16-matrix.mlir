// A bf16 matrix that is permuted and widened is only permuted; the product reads it as bf16.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<2x4xf32>, %w: tensor<4x4xbf16>):
    %0 = tile.map ins(%w : tensor<4x4xbf16>) domain [4, 4] maps [affine_map<(d0, d1) -> (d1, d0)>] {
    ^bb0(%1: bf16):
      %2 = arith.extf %1 : bf16 to f32
      tile.yield %2 : f32
    } -> tensor<4x4xf32>
    %y = tile.reduce ins(%x, %0 : tensor<2x4xf32>, tensor<4x4xf32>) domain [2, 4, 4] parallel 2 : i64
        maps [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<2x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<2x4xf32>, %w: tensor<4x4xbf16>):
    %0 = tile.map ins(%w : tensor<4x4xbf16>) domain [4, 4] maps [affine_map<(d0, d1) -> (d1, d0)>] {
    ^bb0(%1: bf16):
      tile.yield %1 : bf16
    } -> tensor<4x4xbf16>
    %y = tile.reduce ins(%x, %0 : tensor<2x4xf32>, tensor<4x4xbf16>) domain [2, 4, 4] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%2: f32):
      tile.yield %2 : f32
    } -> tensor<2x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x4xf32>
  }
}
