// Variable weights are transformed in every step, directly into panels; so are those of the gradient of
// images, with the window reversed.
// -p use-winograd{schedules="f32 [d0: 1, d1: 6, d2: 6, d3: 32] sum [d4: 3, d5: 3, d6: 16]; lhs
//     128*d1 + 16*d2 + 128*d4 + 16*d5 + d6; rhs 144*d3 + 3*d4 + d5 + 9*d6; result 192*d1 + 32*d2
//     + d3 -> winograd 2","f32 [d0: 1, d1: 6, d2: 6, d3: 16] sum [d4: 3, d5: 3, d6: 32]; lhs
//     256*d1 + 32*d2 + 256*d4 + 32*d5 + d6; rhs 9*d3 + -3*d4 + -1*d5 + 144*d6 + 8; result 96*d1 +
//     16*d2 + d3 -> winograd 2"}
#map = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> ((d0 floordiv 2))>
#map2 = affine_map<(d0, d1, d2, d3) -> (d1)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
#map5 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d6, d3, ((d4 * -1) + 2), ((d5 * -1) + 2))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<1x8x8x16xf32>, %dy: tensor<1x8x8x32xf32>):
    %a = pg.variable #pg.bytes<"a"> = #pg.data<"0000803f000000bf0000803e0000004000000000000080bf0000003f0000403f000080be" : tensor<3x3xf32>>
    %b = pg.constant #pg.data<seed 1 : tensor<16xf32>>
    %w = tile.map ins(%a, %b, %b : tensor<3x3xf32>, tensor<16xf32>, tensor<16xf32>) domain [32, 16, 3, 3] maps [#map, #map1, #map2] {
    ^bb0(%0: f32, %1: f32, %2: f32):
      %3 = arith.addf %0, %1 : f32
      %4 = arith.mulf %3, %2 : f32
      tile.yield %4 : f32
    } -> tensor<32x16x3x3xf32>
    %y = tile.reduce ins(%x, %w : tensor<1x8x8x16xf32>, tensor<32x16x3x3xf32>) domain [1, 6, 6, 32, 3, 3, 16] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<1x6x6x32xf32>
    %dx = tile.reduce ins(%dy, %w : tensor<1x8x8x32xf32>, tensor<32x16x3x3xf32>) domain [1, 6, 6, 16, 3, 3, 32] parallel 4 : i64 maps [#map3, #map5] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<1x6x6x16xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"dx">], %y, %dx : tensor<1x6x6x32xf32>, tensor<1x6x6x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> ((d0 floordiv 2))>
#map2 = affine_map<(d0, d1, d2, d3) -> (d1)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, d4, d5)>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d4, d5, d3)>
#map5 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map6 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map7 = affine_map<(d0, d1, d2, d3) -> ((d2 floordiv 32), d0, d3, (d2 mod 32))>
#map8 = affine_map<(d0, d1, d2, d3) -> ((d2 floordiv 16), d0, d3, (d2 mod 16))>
#data = #pg.data<"0000803f00000000000000000000000000000000000000000000000000000000000000000000003f0000003f0000003f00000000000000000000000000000000"
    "00000000000000000000003f000000bf0000003f00000000000000000000000000000000000000000000000000000000000000000000803f0000000000000000"
    "000000000000000000000000000000000000003f00000000000000000000003f00000000000000000000003f00000000000000000000803e0000803e0000803e"
    "0000803e0000803e0000803e0000803e0000803e0000803e0000803e000080be0000803e0000803e000080be0000803e0000803e000080be0000803e00000000"
    "000000000000003f00000000000000000000003f00000000000000000000003f0000003f0000000000000000000000bf00000000000000000000003f00000000"
    "000000000000803e0000803e0000803e000080be000080be000080be0000803e0000803e0000803e0000803e000080be0000803e000080be0000803e000080be"
    "0000803e000080be0000803e00000000000000000000003f0000000000000000000000bf00000000000000000000003f00000000000000000000000000000000"
    "00000000000000000000803f00000000000000000000000000000000000000000000000000000000000000000000003f0000003f0000003f0000000000000000"
    "000000000000000000000000000000000000003f000000bf0000003f00000000000000000000000000000000000000000000000000000000000000000000803f" : tensor<16x3x3xf32>>
#layout = #tile.layout<#map5, #pg.ints[16, 9, 16]>
#layout1 = #tile.layout<#map5, #pg.ints[16, 9, 48]>
!tensor = tensor<16x9x16xf32, #layout>
!tensor1 = tensor<16x9x32xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<1x8x8x16xf32>, %dy: tensor<1x8x8x32xf32>):
    %a = pg.variable #pg.bytes<"a"> = #pg.data<"0000803f000000bf0000803e0000004000000000000080bf0000003f0000403f000080be" : tensor<3x3xf32>>
    %b = pg.constant #pg.data<seed 1 : tensor<16xf32>>
    %w = tile.map ins(%a, %b, %b : tensor<3x3xf32>, tensor<16xf32>, tensor<16xf32>) domain [32, 16, 3, 3] maps [#map, #map1, #map2] {
    ^bb0(%0: f32, %1: f32, %2: f32):
      %3 = arith.addf %0, %1 : f32
      %4 = arith.mulf %3, %2 : f32
      tile.yield %4 : f32
    } -> tensor<32x16x3x3xf32>
    %5 = tile.map ins(%w : tensor<32x16x3x3xf32>) domain [1, 16, 3, 3, 32] maps [affine_map<(d0, d1, d2, d3, d4) -> (((d0 * 32) + d4), d1, d2, d3)>] {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<1x16x3x3x32xf32>
    %7 = pg.constant #data
    %8 = tile.reduce ins(%7, %5 : tensor<16x3x3xf32>, tensor<1x16x3x3x32xf32>) domain [1, 16, 16, 32, 3, 3] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%9: f32):
      tile.yield %9 : f32
    } -> tensor<1x16x16x32xf32>
    %10 = tile.transform_tiles %x : tensor<1x8x8x16xf32> images [1, 6, 6] offset [0, 0] size 2 : i64
        matrix <[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]> -> !tensor
    %y = tile.fused ins(%10, %8 : !tensor, tensor<1x16x16x32xf32>) domain [32, 9] steps [32, 9] loops [#pg.ints[2, 1], #pg.ints[1, 0]] {
    ^bb0(%11: !tensor, %12: tensor<1x16x16x32xf32>):
      %13 = tile.reduce ins(%11, %12 : !tensor, tensor<1x16x16x32xf32>) domain [16, 9, 32, 16] parallel 3 : i64
          maps [#map6, #map7] epilogue_maps [] product f32
          schedule <n_dim 2, n_vectors 2, m_dim 1, mr 14, kc 64, lanes 16> epilogue {
      ^bb0(%14: f32):
        tile.yield %14 : f32
      } -> tensor<16x9x32xf32>
      %y_1 = tile.transform_tiles %13 : tensor<16x9x32xf32> images [1, 6, 6] size 2 : i64 matrix <[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, -1.0]> epilogue_maps [] epilogue {
      ^bb0(%15: f32):
        tile.yield %15 : f32
      } -> tensor<1x6x6x32xf32>
      tile.yield %y_1 : tensor<1x6x6x32xf32>
    } -> tensor<1x6x6x32xf32>
    %11 = tile.map ins(%w : tensor<32x16x3x3xf32>) domain [1, 32, 3, 3, 16] maps [affine_map<(d0, d1, d2, d3, d4) -> (d1, ((d0 * 16) + d4), ((d2 * -1) + 2), ((d3 * -1) + 2))>] {
    ^bb0(%12: f32):
      tile.yield %12 : f32
    } -> tensor<1x32x3x3x16xf32>
    %13 = pg.constant #data
    %14 = tile.reduce ins(%13, %11 : tensor<16x3x3xf32>, tensor<1x32x3x3x16xf32>) domain [1, 16, 32, 16, 3, 3] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<1x16x32x16xf32>
    %16 = tile.transform_tiles %dy : tensor<1x8x8x32xf32> images [1, 6, 6] offset [0, 0] size 2 : i64
        matrix <[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]> -> !tensor1
    %dx = tile.fused ins(%16, %14 : !tensor1, tensor<1x16x32x16xf32>) domain [16, 9] steps [16, 9] loops [#pg.ints[2, 1], #pg.ints[1, 0]] {
    ^bb0(%17: !tensor1, %18: tensor<1x16x32x16xf32>):
      %19 = tile.reduce ins(%17, %18 : !tensor1, tensor<1x16x32x16xf32>) domain [16, 9, 16, 32] parallel 3 : i64
          maps [#map6, #map8] epilogue_maps [] product f32
          schedule <n_dim 2, n_vectors 1, m_dim 1, mr 14, kc 64, lanes 16> epilogue {
      ^bb0(%20: f32):
        tile.yield %20 : f32
      } -> tensor<16x9x16xf32>
      %dx_1 = tile.transform_tiles %19 : tensor<16x9x16xf32> images [1, 6, 6] size 2 : i64 matrix <[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, -1.0]> epilogue_maps [] epilogue {
      ^bb0(%21: f32):
        tile.yield %21 : f32
      } -> tensor<1x6x6x16xf32>
      tile.yield %dx_1 : tensor<1x6x6x16xf32>
    } -> tensor<1x6x6x16xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"dx">], %y, %dx : tensor<1x6x6x32xf32>, tensor<1x6x6x16xf32>
  }
}
