// A pixel of 512 channels takes 2 KiB, so all pixels would share two of 64 sets: the halo adds a
// line of 16 channels to each.
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 + d4, d2 + d5, d3)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x3x5x512xf32>, %w: tensor<3x3x512xf32>):
    %0 = tile.map ins(%x : tensor<1x3x5x512xf32>) domain [1, 3, 5, 512] maps [#map] {
    ^bb0(%1: f32):
      %2 = arith.negf %1 : f32
      tile.yield %2 : f32
    } -> tensor<1x3x5x512xf32>
    %3 = tile.assemble(%0 : tensor<1x3x5x512xf32>) offsets [0, 1, 1, 0] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x5x7x512xf32>
    %4 = tile.reduce ins(%3, %w : tensor<1x5x7x512xf32>, tensor<3x3x512xf32>) domain [1, 3, 5, 512, 3, 3] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<1x3x5x512xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<1x3x5x512xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (0, ((d1 + d4) + -1), ((d2 + d5) + -1), d3)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5, d3)>
#layout = #tile.layout<#map, #pg.ints[1, 5, 7, 528]>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x3x5x512xf32>, %w: tensor<3x3x512xf32>):
    %0 = tile.map ins(%x : tensor<1x3x5x512xf32>) domain [1, 3, 5, 512] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] {
    ^bb0(%1: f32):
      %2 = arith.negf %1 : f32
      tile.yield %2 : f32
    } -> tensor<1x3x5x512xf32, #layout>
    %3 = tile.reduce ins(%0, %w : tensor<1x3x5x512xf32, #layout>, tensor<3x3x512xf32>) domain [1, 3, 5, 512, 3, 3] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x3x5x512xf32>
    pg.return [#pg.bytes<"y">], %3 : tensor<1x3x5x512xf32>
  }
}
