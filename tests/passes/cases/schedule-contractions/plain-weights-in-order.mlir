// In a small program, loops stay plain; a weight is stored in the order of the loops that read it. A variable keeps its order.
// -p schedule-contractions{plain=true}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<64x16xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %2 = tile.reduce ins(%0, %1 : tensor<64x16xf32>, tensor<16x16xf32>) domain [64, 16, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<64x16xf32>
    %4 = pg.variable #pg.bytes<"w"> = #pg.data<seed 2 : tensor<16x16xf32>>
    %5 = tile.reduce ins(%2, %4 : tensor<64x16xf32>, tensor<16x16xf32>) domain [64, 16, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<64x16xf32>
    pg.return [#pg.bytes<"v0">], %5 : tensor<64x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1) -> (d1, d0)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d2, d1)>
#layout = #tile.layout<#map, #pg.ints[16, 16]>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<64x16xf32>):
    %1 = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %2 = tile.pack %1 : tensor<16x16xf32> -> tensor<16x16xf32, #layout>
    %3 = tile.reduce ins(%0, %2 : tensor<64x16xf32>, tensor<16x16xf32, #layout>) domain [64, 16, 16] parallel 2 : i64 maps [#map1, #map2] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<64x16xf32>
    %5 = pg.variable #pg.bytes<"w"> = #pg.data<seed 2 : tensor<16x16xf32>>
    %6 = tile.reduce ins(%3, %5 : tensor<64x16xf32>, tensor<16x16xf32>) domain [64, 16, 16] parallel 2 : i64 maps [#map1, #map2] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<64x16xf32>
    pg.return [#pg.bytes<"v0">], %6 : tensor<64x16xf32>
  }
}
