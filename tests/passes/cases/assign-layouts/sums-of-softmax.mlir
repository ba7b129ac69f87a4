// The result of attention takes the order of the next product, but the sums of its softmax keep that of their rows.
#map = affine_map<(d0, d1, d2, d3, d4) -> (0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (0, d4, d1, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (0, d1, d2, 0)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, (d3 floordiv 4), d1, (d3 mod 4))>
#map4 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
#data = #pg.data<"000000000000803c0000003d0000403d0000803d0000a03d0000c03d0000e03d0000003e0000103e0000203e0000303e0000403e0000503e0000603e0000703e"
    "0000803e0000883e0000903e0000983e0000a03e0000a83e0000b03e0000b83e0000c03e0000c83e0000d03e0000d83e0000e03e0000e83e0000f03e0000f83e"
    "0000003f0000043f0000083f00000c3f0000103f0000143f0000183f00001c3f0000203f0000243f0000283f00002c3f0000303f0000343f0000383f00003c3f"
    "0000403f0000443f0000483f00004c3f0000503f0000543f0000583f00005c3f0000603f0000643f0000683f00006c3f0000703f0000743f0000783f00007c3f" : tensor<8x8xf32>>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"s">, #pg.bytes<"v">] {
  ^bb0(%s: tensor<1x2x16x16xf32>, %v: tensor<1x16x2x4xf32>):
    %w = pg.constant #data
    %0 = tile.reduce ins(%s : tensor<1x2x16x16xf32>) domain [1, 2, 16, 16] parallel 3 : i64 maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%1: f32, %2: f32):
      %3 = arith.maximumf %2, %1 : f32
      tile.yield %3 : f32
    } epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x2x16xf32>
    %5 = tile.map ins(%s, %0 : tensor<1x2x16x16xf32>, tensor<1x2x16xf32>) domain [1, 2, 16, 16] maps [affine_map<(d0, d1, d2, d3) -> (0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (0, d1, d2)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.subf %6, %7 : f32
      %9 = tile.exp_nonpositive %8 : f32
      tile.yield %9 : f32
    } -> tensor<1x2x16x16xf32>
    %10 = tile.reduce ins(%5 : tensor<1x2x16x16xf32>) domain [1, 2, 16, 16] parallel 3 : i64 maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%11: f32, %12: f32):
      %13 = arith.addf %12, %11 : f32
      tile.yield %13 : f32
    } epilogue {
    ^bb0(%14: f32):
      %15 = arith.constant 1.000000e+00 : f32
      %16 = arith.divf %15, %14 : f32
      tile.yield %16 : f32
    } -> tensor<1x2x16xf32>
    %17 = tile.view %10 : tensor<1x2x16xf32> -> tensor<1x2x16x1xf32>
    %yt = tile.reduce ins(%5, %v : tensor<1x2x16x16xf32>, tensor<1x16x2x4xf32>)
        epilogue_inputs(%17 : tensor<1x2x16x1xf32>) domain [1, 2, 16, 4, 16] parallel 4 : i64 maps [#map, #map1]
        epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%18: f32, %19: f32):
      %20 = arith.mulf %18, %19 : f32
      tile.yield %20 : f32
    } -> tensor<1x2x16x4xf32>
    %y = tile.reduce ins(%yt, %w : tensor<1x2x16x4xf32>, tensor<8x8xf32>) domain [1, 16, 8, 8] parallel 3 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%21: f32):
      tile.yield %21 : f32
    } -> tensor<1x16x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x16x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4) -> (0, d2, d1, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (0, d4, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (0, d2, d1, 0)>
#map3 = affine_map<(d0, d1, d2, d3) -> (0, d1, (d3 floordiv 4), (d3 mod 4))>
#map4 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
#data = #pg.data<"000000000000803c0000003d0000403d0000803d0000a03d0000c03d0000e03d0000003e0000103e0000203e0000303e0000403e0000503e0000603e0000703e"
    "0000803e0000883e0000903e0000983e0000a03e0000a83e0000b03e0000b83e0000c03e0000c83e0000d03e0000d83e0000e03e0000e83e0000f03e0000f83e"
    "0000003f0000043f0000083f00000c3f0000103f0000143f0000183f00001c3f0000203f0000243f0000283f00002c3f0000303f0000343f0000383f00003c3f"
    "0000403f0000443f0000483f00004c3f0000503f0000543f0000583f00005c3f0000603f0000643f0000683f00006c3f0000703f0000743f0000783f00007c3f" : tensor<8x8xf32>>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"s">, #pg.bytes<"v">] {
  ^bb0(%s: tensor<1x2x16x16xf32>, %v: tensor<1x16x2x4xf32>):
    %w = pg.constant #data
    %0 = tile.reduce ins(%s : tensor<1x2x16x16xf32>) domain [1, 2, 16, 16] parallel 3 : i64 maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%1: f32, %2: f32):
      %3 = arith.maximumf %2, %1 : f32
      tile.yield %3 : f32
    } epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x2x16xf32>
    %5 = tile.map ins(%s, %0 : tensor<1x2x16x16xf32>, tensor<1x2x16xf32>) domain [1, 2, 16, 16] maps [affine_map<(d0, d1, d2, d3) -> (0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (0, d1, d2)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.subf %6, %7 : f32
      %9 = tile.exp_nonpositive %8 : f32
      tile.yield %9 : f32
    } -> tensor<1x2x16x16xf32>
    %10 = tile.reduce ins(%5 : tensor<1x2x16x16xf32>) domain [1, 2, 16, 16] parallel 3 : i64 maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%11: f32, %12: f32):
      %13 = arith.addf %12, %11 : f32
      tile.yield %13 : f32
    } epilogue {
    ^bb0(%14: f32):
      %15 = arith.constant 1.000000e+00 : f32
      %16 = arith.divf %15, %14 : f32
      tile.yield %16 : f32
    } -> tensor<1x2x16xf32>
    %17 = tile.view %10 : tensor<1x2x16xf32> -> tensor<1x2x16x1xf32>
    %yt = tile.reduce ins(%5, %v : tensor<1x2x16x16xf32>, tensor<1x16x2x4xf32>)
        epilogue_inputs(%17 : tensor<1x2x16x1xf32>) domain [1, 16, 2, 4, 16] parallel 4 : i64 maps [#map, #map1]
        epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%18: f32, %19: f32):
      %20 = arith.mulf %18, %19 : f32
      tile.yield %20 : f32
    } -> tensor<1x16x2x4xf32>
    %y = tile.reduce ins(%yt, %w : tensor<1x16x2x4xf32>, tensor<8x8xf32>) domain [1, 16, 8, 8] parallel 3 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%21: f32):
      tile.yield %21 : f32
    } -> tensor<1x16x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x16x8xf32>
  }
}
