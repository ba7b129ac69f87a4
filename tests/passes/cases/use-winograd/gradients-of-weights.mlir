// The gradient of weights uses the transposed transforms of its convolution: tiles of the image and of the
// gradient are multiplied tap by tap, summed over all tiles, and the sums are transformed back.
// -p use-winograd{schedules="f32 [d0: 16, d1: 3, d2: 3, d3: 8] sum [d4: 1, d5: 5, d6: 6]; lhs
//     64*d1 + 8*d2 + d3 + 64*d5 + 8*d6; rhs d0 + 96*d5 + 16*d6; extra 72*d0 + 24*d1 + 8*d2 + d3;
//     result 72*d0 + 24*d1 + 8*d2 + d3 -> winograd 4"}
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, (d1 + d5), (d2 + d6), d3)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d5, d6, d0)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x7x8x8xf32>, %dy: tensor<1x5x6x16xf32>, %w: tensor<16x3x3x8xf32>):
    %dw = tile.reduce ins(%x, %dy : tensor<1x7x8x8xf32>, tensor<1x5x6x16xf32>) epilogue_inputs(%w : tensor<16x3x3x8xf32>)
        domain [16, 3, 3, 8, 1, 5, 6] parallel 4 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.subf %1, %0 : f32
      tile.yield %2 : f32
    } -> tensor<16x3x3x8xf32>
    pg.return [#pg.bytes<"dw">], %dw : tensor<16x3x3x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1)>
#map3 = affine_map<(d0, d1, d2, d3, d4) -> (d1, d2, d4)>
#map4 = affine_map<(d0, d1, d2, d3, d4) -> (d4, d0, d3)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#layout = #tile.layout<#map, #pg.ints[36, 5, 16]>
!tensor = tensor<36x4x8xf32, #layout>
!tensor1 = tensor<36x4x16xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x7x8x8xf32>, %dy: tensor<1x5x6x16xf32>, %w: tensor<16x3x3x8xf32>):
    %0 = tile.transform_tiles %x : tensor<1x7x8x8xf32> images [1, 5, 6] offset [0, 0] size 4 : i64
        matrix <[1.0, 0.0, -2.5, 0.0, 1.0, 0.0], [0.0, 1.4142135623730951, 2.0, -0.7071067811865476, -1.0, 0.0],
        [0.0, -1.4142135623730951, 2.0, 0.7071067811865476, -1.0, 0.0],
        [0.0, -0.7071067811865476, -0.5, 1.4142135623730951, 1.0, 0.0],
        [0.0, 0.7071067811865476, -0.5, -1.4142135623730951, 1.0, 0.0], [0.0, 1.0, 0.0, -2.5, 0.0, 1.0]> -> !tensor
    %1 = tile.transform_tiles %dy : tensor<1x5x6x16xf32> images [1, 5, 6] offset [0, 0] size 4 : i64
        matrix <[1.0, 0.0, 0.0, 0.0], [1.0, 0.7071067811865476, 0.5, 0.3535533905932738],
        [1.0, -0.7071067811865476, 0.5, -0.3535533905932738], [1.0, 1.4142135623730951, 2.0, 2.8284271247461903],
        [1.0, -1.4142135623730951, 2.0, -2.8284271247461903], [0.0, 0.0, 0.0, 1.0]> -> !tensor1
    %2 = tile.reduce ins(%0, %1 : !tensor, !tensor1) domain [36, 16, 8, 4] parallel 3 : i64 maps [#map1, #map2] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<36x16x8xf32>
    %4 = pg.constant #pg.blob<"a6144ef048aef60592af726e9cb7c03ce0f1df8ca2c58239148cc99b9000bde9" : tensor<3x3x36xf32>>
    %dw = tile.reduce ins(%4, %2 : tensor<3x3x36xf32>, tensor<36x16x8xf32>) epilogue_inputs(%w : tensor<16x3x3x8xf32>)
        domain [16, 3, 3, 8, 36] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [#map5] product f32 epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.subf %6, %5 : f32
      tile.yield %7 : f32
    } -> tensor<16x3x3x8xf32>
    pg.return [#pg.bytes<"dw">], %dw : tensor<16x3x3x8xf32>
  }
}
