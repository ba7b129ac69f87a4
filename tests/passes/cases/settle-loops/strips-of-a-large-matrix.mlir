// A vector times a constant matrix in memory: columns are split into four strips, which a tile reads as four streams.
// -p settle-loops{streamed-l2=0.0005 least-strip-results=4}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x16xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %b = pg.constant #pg.data<seed 2 : tensor<16xf32>>
    %y = tile.reduce ins(%x, %w : tensor<1x16xf32>, tensor<16x16xf32>) epilogue_inputs(%b : tensor<16xf32>)
        domain [1, 16, 16] parallel 2 : i64
        maps [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>] epilogue_maps [affine_map<(d0, d1) -> (d1)>] product f32 epilogue {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<1x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d1, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d1, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x16xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %b = pg.constant #pg.data<seed 2 : tensor<16xf32>>
    %0 = tile.view %w : tensor<16x16xf32> -> tensor<16x4x4xf32>
    %1 = tile.view %b : tensor<16xf32> -> tensor<4x4xf32>
    %2 = tile.reduce ins(%x, %0 : tensor<1x16xf32>, tensor<16x4x4xf32>) epilogue_inputs(%1 : tensor<4x4xf32>)
        domain [1, 4, 4, 16] parallel 3 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.addf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<1x4x4xf32>
    %y = tile.view %2 : tensor<1x4x4xf32> -> tensor<1x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x16xf32>
  }
}
