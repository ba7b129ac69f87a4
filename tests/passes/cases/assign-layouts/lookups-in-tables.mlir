// A table indexed along all axes of the result has its order of axes; a table of another rank keeps its own.
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d2 + d5), (d3 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"image">] {
  ^bb0(%image: tensor<1x2x3x4xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x2x1x1xf32>>
    %p = pg.constant #pg.data<"0000000000000000030000000000000001000000000000000200000000000000" : tensor<4xi64>>
    %t = pg.constant #pg.data<"000080bf000040bf000000bf000080be" : tensor<4xf32>>
    %y = tile.reduce ins(%image, %w : tensor<1x2x3x4xf32>, tensor<8x2x1x1xf32>)
        domain [1, 8, 3, 4, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%c: f32):
      tile.yield %c : f32
    } -> tensor<1x8x3x4xf32>
    %z = tile.map ins(%p : tensor<4xi64>) tables(%y, %t : tensor<1x8x3x4xf32>, tensor<4xf32>) domain [1, 8, 3, 4] maps [#map2] {
    ^bb0(%i: i64, %a: tensor<1x8x3x4xf32>, %b: tensor<4xf32>):
      %place = arith.index_cast %i : i64 to index
      %d0 = tile.index 0 : i64
      %d1 = tile.index 1 : i64
      %d2 = tile.index 2 : i64
      %e = tile.element %a[%d0, %d1, %d2, %place] : tensor<1x8x3x4xf32> -> f32
      %f = tile.element %b[%place] : tensor<4xf32> -> f32
      %g = arith.addf %e, %f : f32
      tile.yield %g : f32
    } -> tensor<1x8x3x4xf32>
    pg.return [#pg.bytes<"z">], %z : tensor<1x8x3x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d1 + d5), (d2 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d4, d5, d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"image">] {
  ^bb0(%image: tensor<1x2x3x4xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x2x1x1xf32>>
    %p = pg.constant #pg.data<"0000000000000000030000000000000001000000000000000200000000000000" : tensor<4xi64>>
    %t = pg.constant #pg.data<"000080bf000040bf000000bf000080be" : tensor<4xf32>>
    %y = tile.reduce ins(%image, %w : tensor<1x2x3x4xf32>, tensor<8x2x1x1xf32>) domain [1, 3, 4, 8, 2, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%c: f32):
      tile.yield %c : f32
    } -> tensor<1x3x4x8xf32>
    %z = tile.map ins(%p : tensor<4xi64>) tables(%y, %t : tensor<1x3x4x8xf32>, tensor<4xf32>) domain [1, 3, 4, 8] maps [affine_map<(d0, d1, d2, d3) -> (d2)>] {
    ^bb0(%i: i64, %a: tensor<1x3x4x8xf32>, %b: tensor<4xf32>):
      %place = arith.index_cast %i : i64 to index
      %d0 = tile.index 0 : i64
      %d1 = tile.index 3 : i64
      %d2 = tile.index 1 : i64
      %e = tile.element %a[%d0, %d2, %place, %d1] : tensor<1x3x4x8xf32> -> f32
      %f = tile.element %b[%place] : tensor<4xf32> -> f32
      %g = arith.addf %e, %f : f32
      tile.yield %g : f32
    } -> tensor<1x3x4x8xf32>
    %0 = tile.map ins(%z : tensor<1x3x4x8xf32>) domain [1, 8, 3, 4] maps [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>] {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<1x8x3x4xf32>
    pg.return [#pg.bytes<"z">], %0 : tensor<1x8x3x4xf32>
  }
}
