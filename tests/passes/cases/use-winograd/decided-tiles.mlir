// A decision about a contraction takes precedence over the cost estimate.
// -p use-winograd{schedules="f32 [d0: 1, d1: 14, d2: 14, d3: 16] sum [d4: 3, d5: 3, d6: 16]; lhs
//     256*d1 + 16*d2 + 256*d4 + 16*d5 + d6; constant rhs 144*d3 + 3*d4 + d5 + 9*d6; extra d3;
//     result 224*d1 + 16*d2 + d3 -> winograd 2, tiles 13"}
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d3)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, ((d1 * 2) + d4), ((d2 * 2) + d5), d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x16x16x16xf32>):
    %a = pg.constant #pg.data<"0000803f000000bf0000803e0000004000000000000080bf0000003f0000403f000080be" : tensor<3x3xf32>>
    %b = pg.constant #pg.data<seed 1 : tensor<16xf32>>
    %w = tile.map ins(%a, %b : tensor<3x3xf32>, tensor<16xf32>) domain [16, 16, 3, 3] maps [affine_map<(d0, d1, d2, d3) -> (d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0)>] {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<16x16x3x3xf32>
    %y = tile.reduce ins(%x, %w : tensor<1x16x16x16xf32>, tensor<16x16x3x3xf32>) epilogue_inputs(%b : tensor<16xf32>)
        domain [1, 14, 14, 16, 3, 3, 16] parallel 4 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.addf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<1x14x14x16xf32>
    %z = tile.reduce ins(%y, %w : tensor<1x14x14x16xf32>, tensor<16x16x3x3xf32>) domain [1, 6, 6, 16, 3, 3, 16] parallel 4 : i64 maps [#map3, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      tile.yield %6 : f32
    } -> tensor<1x6x6x16xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %y, %z : tensor<1x14x14x16xf32>, tensor<1x6x6x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, d4, d5)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d4, d5, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> ((d2 floordiv 16), d0, d3, (d2 mod 16))>
#map4 = affine_map<(d0, d1, d2, d3) -> (d3)>
#map5 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, ((d1 * 2) + d4), ((d2 * 2) + d5), d6)>
#map6 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x16x16x16xf32>):
    %a = pg.constant #pg.data<"0000803f000000bf0000803e0000004000000000000080bf0000003f0000403f000080be" : tensor<3x3xf32>>
    %b = pg.constant #pg.data<seed 1 : tensor<16xf32>>
    %w = tile.map ins(%a, %b : tensor<3x3xf32>, tensor<16xf32>) domain [16, 16, 3, 3] maps [affine_map<(d0, d1, d2, d3) -> (d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0)>] {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<16x16x3x3xf32>
    %3 = tile.map ins(%w : tensor<16x16x3x3xf32>) domain [1, 16, 3, 3, 16] maps [affine_map<(d0, d1, d2, d3, d4) -> (((d0 * 16) + d4), d1, d2, d3)>] {
    ^bb0(%4: f32):
      %5 = arith.extf %4 : f32 to f64
      tile.yield %5 : f64
    } -> tensor<1x16x3x3x16xf64>
    %6 = pg.constant #pg.blob<"c1518da4c7825a6d494076f9241931f6ce2ac00faf13ef32c764cc3af3937257" : tensor<16x3x3xf64>>
    %7 = tile.reduce ins(%6, %3 : tensor<16x3x3xf64>, tensor<1x16x3x3x16xf64>) domain [1, 16, 16, 16, 3, 3] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f64 epilogue {
    ^bb0(%8: f64):
      %9 = arith.truncf %8 : f64 to f32
      tile.yield %9 : f32
    } -> tensor<1x16x16x16xf32>
    %y = tile.fused ins(%x, %7, %b : tensor<1x16x16x16xf32>, tensor<1x16x16x16xf32>, tensor<16xf32>) domain [49, 16] steps [13, 16] loops [#pg.ints[0], #pg.ints[1, 2], #pg.ints[0, 1]] {
    ^bb0(%10: tensor<1x16x16x16xf32>, %11: tensor<1x16x16x16xf32>, %12: tensor<16xf32>):
      %13 = tile.transform_tiles %10 : tensor<1x16x16x16xf32> images [1, 14, 14] offset [0, 0] size 2 : i64
          matrix <[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0],
          [0.0, 1.0, 0.0, -1.0]> -> tensor<16x49x16xf32>
      %14 = tile.reduce ins(%13, %11 : tensor<16x49x16xf32>, tensor<1x16x16x16xf32>) domain [16, 49, 16, 16]
          parallel 3 : i64 maps [#map2, #map3] epilogue_maps [] product f32
          schedule <n_dim 2, n_vectors 1, m_dim 1, mr 14, kc 64, lanes 16> epilogue {
      ^bb0(%15: f32):
        tile.yield %15 : f32
      } -> tensor<16x49x16xf32>
      %y_1 = tile.transform_tiles %14 : tensor<16x49x16xf32> epilogue_inputs(%12 : tensor<16xf32>) images [1, 14, 14]
          size 2 : i64 matrix <[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, -1.0]> epilogue_maps [#map4] epilogue {
      ^bb0(%16: f32, %17: f32):
        %18 = arith.addf %16, %17 : f32
        tile.yield %18 : f32
      } -> tensor<1x14x14x16xf32>
      tile.yield %y_1 : tensor<1x14x14x16xf32>
    } -> tensor<1x14x14x16xf32>
    %z = tile.reduce ins(%y, %w : tensor<1x14x14x16xf32>, tensor<16x16x3x3xf32>) domain [1, 6, 6, 16, 3, 3, 16] parallel 4 : i64 maps [#map5, #map6] epilogue_maps [] product f32 epilogue {
    ^bb0(%10: f32):
      tile.yield %10 : f32
    } -> tensor<1x6x6x16xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %y, %z : tensor<1x14x14x16xf32>, tensor<1x6x6x16xf32>
  }
}
