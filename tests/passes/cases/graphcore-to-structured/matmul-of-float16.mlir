// f16 factors are widened to f32 once; the sum is rounded once, at the end.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%a: tensor<2x3xbf16>, %b: tensor<3x4xbf16>):
    %y = graphcore.mat_mul %a, %b : (tensor<2x3xbf16>, tensor<3x4xbf16>) -> tensor<2x4xbf16>
    pg.return [#pg.bytes<"y">], %y : tensor<2x4xbf16>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%a: tensor<2x3xbf16>, %b: tensor<3x4xbf16>):
    %0 = tile.map ins(%a : tensor<2x3xbf16>) domain [2, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%1: bf16):
      %2 = arith.extf %1 : bf16 to f32
      tile.yield %2 : f32
    } -> tensor<2x3xf32>
    %3 = tile.map ins(%b : tensor<3x4xbf16>) domain [3, 4] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%4: bf16):
      %5 = arith.extf %4 : bf16 to f32
      tile.yield %5 : f32
    } -> tensor<3x4xf32>
    %y = tile.reduce ins(%0, %3 : tensor<2x3xf32>, tensor<3x4xf32>) domain [2, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      %7 = arith.truncf %6 : f32 to bf16
      tile.yield %7 : bf16
    } -> tensor<2x4xbf16>
    pg.return [#pg.bytes<"y">], %y : tensor<2x4xbf16>
  }
}
