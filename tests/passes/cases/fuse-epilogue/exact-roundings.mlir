// A maximum of numbers of bf16 is one: only sums and products are rounded.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<4xbf16>):
    %2 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<3x4xf32>>
    %3 = tile.reduce ins(%0, %2 : tensor<2x3xf32>, tensor<3x4xf32>) domain [2, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      %5 = arith.truncf %4 : f32 to bf16
      tile.yield %5 : bf16
    } -> tensor<2x4xbf16>
    %6 = tile.map ins(%3, %1 : tensor<2x4xbf16>, tensor<4xbf16>) domain [2, 4] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>] {
    ^bb0(%7: bf16, %8: bf16):
      %9 = arith.extf %7 : bf16 to f32
      %10 = arith.extf %8 : bf16 to f32
      %11 = arith.addf %9, %10 : f32
      %12 = arith.truncf %11 : f32 to bf16
      tile.yield %12 : bf16
    } -> tensor<2x4xbf16>
    %13 = tile.map ins(%6 : tensor<2x4xbf16>) domain [2, 4] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%14: bf16):
      %15 = arith.extf %14 : bf16 to f32
      %16 = arith.constant 0.000000e+00 : f32
      %17 = arith.maximumf %15, %16 : f32
      %18 = arith.truncf %17 : f32 to bf16
      tile.yield %18 : bf16
    } -> tensor<2x4xbf16>
    %19 = tile.map ins(%13 : tensor<2x4xbf16>) domain [2, 4] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%20: bf16):
      %21 = arith.extf %20 : bf16 to f32
      %22 = arith.constant 6.000000e+00 : f32
      %23 = arith.minimumf %21, %22 : f32
      %24 = arith.truncf %23 : f32 to bf16
      tile.yield %24 : bf16
    } -> tensor<2x4xbf16>
    %25 = tile.map ins(%19 : tensor<2x4xbf16>) domain [2, 4] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%26: bf16):
      %27 = arith.extf %26 : bf16 to f32
      %28 = arith.constant 0.100000e+00 : f32
      %29 = arith.mulf %27, %28 : f32
      %30 = arith.truncf %29 : f32 to bf16
      tile.yield %30 : bf16
    } -> tensor<2x4xbf16>
    pg.return [#pg.bytes<"v2">], %25 : tensor<2x4xbf16>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<4xbf16>):
    %2 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<3x4xf32>>
    %3 = tile.reduce ins(%0, %2 : tensor<2x3xf32>, tensor<3x4xf32>) epilogue_inputs(%1 : tensor<4xbf16>)
        domain [2, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%4: f32, %5: bf16):
      %6 = arith.truncf %4 : f32 to bf16
      %7 = arith.extf %6 : bf16 to f32
      %8 = arith.extf %5 : bf16 to f32
      %9 = arith.addf %7, %8 : f32
      %10 = arith.truncf %9 : f32 to bf16
      %11 = arith.extf %10 : bf16 to f32
      %12 = arith.constant 0.000000e+00 : f32
      %13 = arith.maximumf %11, %12 : f32
      %14 = arith.constant 6.000000e+00 : f32
      %15 = arith.minimumf %13, %14 : f32
      %16 = arith.constant 1.000000e-01 : f32
      %17 = arith.mulf %15, %16 : f32
      %18 = arith.truncf %17 : f32 to bf16
      tile.yield %18 : bf16
    } -> tensor<2x4xbf16>
    pg.return [#pg.bytes<"v2">], %3 : tensor<2x4xbf16>
  }
}
