// A sum of f16 accumulates in f32 and is rounded once, at the end.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4x3xf16>):
    %y = graphcore.reduce_sum %x {axes = [0], keepdims = true} : (tensor<4x3xf16>) -> tensor<1x3xf16>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3xf16>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4x3xf16>):
    %0 = tile.reduce ins(%x : tensor<4x3xf16>) domain [3, 4] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d1, d0)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%1: f16, %2: f32):
      %3 = arith.extf %1 : f16 to f32
      %4 = arith.addf %2, %3 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32):
      %6 = arith.truncf %5 : f32 to f16
      tile.yield %6 : f16
    } -> tensor<3xf16>
    %y = tile.view %0 : tensor<3xf16> -> tensor<1x3xf16>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3xf16>
  }
}
