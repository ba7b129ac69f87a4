// Loops over terms are joined, too: a sum over rows and columns is one over pixels. A loop over results and
// one over terms are not joined.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<3x4x6xf32>, %w: tensor<4x6x8xf32>):
    %y = tile.reduce ins(%x, %w : tensor<3x4x6xf32>, tensor<4x6x8xf32>) domain [3, 8, 4, 6] parallel 2 : i64
        maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d2, d3, d1)>] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<3x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<3x4x6xf32>, %w: tensor<4x6x8xf32>):
    %0 = tile.view %x : tensor<3x4x6xf32> -> tensor<3x24xf32>
    %1 = tile.view %w : tensor<4x6x8xf32> -> tensor<24x8xf32>
    %y = tile.reduce ins(%0, %1 : tensor<3x24xf32>, tensor<24x8xf32>) domain [3, 8, 24] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%2: f32):
      tile.yield %2 : f32
    } -> tensor<3x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x8xf32>
  }
}
