// A vector-matrix product reads a bf16 matrix without a conversion, through the same view.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x6xf32>, %w: tensor<6x8xbf16>):
    %0 = tile.map ins(%w : tensor<6x8xbf16>) domain [6, 8] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%1: bf16):
      %2 = arith.extf %1 : bf16 to f32
      tile.yield %2 : f32
    } -> tensor<6x8xf32>
    %3 = tile.view %0 : tensor<6x8xf32> -> tensor<6x2x4xf32>
    %y = tile.reduce ins(%x, %3 : tensor<1x6xf32>, tensor<6x2x4xf32>) domain [1, 2, 4, 6] parallel 3 : i64
        maps [affine_map<(d0, d1, d2, d3) -> (d0, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d1, d2)>] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x2x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d1, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x6xf32>, %w: tensor<6x8xbf16>):
    %0 = tile.view %w : tensor<6x8xbf16> -> tensor<6x2x4xbf16>
    %y = tile.reduce ins(%x, %0 : tensor<1x6xf32>, tensor<6x2x4xbf16>) domain [1, 2, 4, 6] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<1x2x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2x4xf32>
  }
}
