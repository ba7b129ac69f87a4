// Without vectors, a sum has the halo of the residual that it adds, so that it can take its memory.
// -p assign-halos{is-scalar=true}
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<1x4x4x2xf32>, %1: tensor<2x2x3x3xf32>):
    %2 = tile.map ins(%0 : tensor<1x4x4x2xf32>) domain [1, 4, 4, 2] maps [#map] {
    ^bb0(%3: f32):
      %4 = arith.negf %3 : f32
      tile.yield %4 : f32
    } -> tensor<1x4x4x2xf32>
    %5 = tile.assemble(%2 : tensor<1x4x4x2xf32>) offsets [0, 1, 1, 0] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x6x6x2xf32>
    %6 = tile.reduce ins(%5, %1 : tensor<1x6x6x2xf32>, tensor<2x2x3x3xf32>) epilogue_inputs(%2 : tensor<1x4x4x2xf32>)
        domain [1, 4, 4, 2, 3, 3, 2] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [#map] product f32 epilogue {
    ^bb0(%7: f32, %8: f32):
      %9 = arith.addf %7, %8 : f32
      tile.yield %9 : f32
    } -> tensor<1x4x4x2xf32>
    %10 = tile.reduce ins(%6, %1 : tensor<1x4x4x2xf32>, tensor<2x2x3x3xf32>) domain [1, 2, 2, 2, 3, 3, 2] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [] product f32 epilogue {
    ^bb0(%11: f32):
      tile.yield %11 : f32
    } -> tensor<1x2x2x2xf32>
    pg.return [#pg.bytes<"y">], %10 : tensor<1x2x2x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, (d1 + 1), (d2 + 1), d3)>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (0, ((d1 + d4) + -1), ((d2 + d5) + -1), d6)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#layout = #tile.layout<#map1, #pg.ints[1, 6, 6, 2]>
!tensor = tensor<1x4x4x2xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<1x4x4x2xf32>, %1: tensor<2x2x3x3xf32>):
    %2 = tile.map ins(%0 : tensor<1x4x4x2xf32>) domain [1, 4, 4, 2] maps [#map] {
    ^bb0(%3: f32):
      %4 = arith.negf %3 : f32
      tile.yield %4 : f32
    } -> !tensor
    %5 = tile.reduce ins(%2, %1 : !tensor, tensor<2x2x3x3xf32>) epilogue_inputs(%2 : !tensor)
        domain [1, 4, 4, 2, 3, 3, 2] parallel 4 : i64 maps [#map2, #map3] epilogue_maps [#map] product f32 epilogue {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.addf %6, %7 : f32
      tile.yield %8 : f32
    } -> !tensor
    %9 = tile.reduce ins(%5, %1 : !tensor, tensor<2x2x3x3xf32>) domain [1, 2, 2, 2, 3, 3, 2] parallel 4 : i64 maps [#map4, #map3] epilogue_maps [] product f32 epilogue {
    ^bb0(%10: f32):
      tile.yield %10 : f32
    } -> tensor<1x2x2x2xf32>
    pg.return [#pg.bytes<"y">], %9 : tensor<1x2x2x2xf32>
  }
}
