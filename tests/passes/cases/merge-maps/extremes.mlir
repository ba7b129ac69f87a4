// The minimum and the maximum of a tensor become results of one reduction. A sum is not merged, nor is a maximum whose epilogue reads a value computed between both.
#map = affine_map<(d0, d1) -> (d0, d1)>
#scalar = affine_map<() -> ()>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4x6xf32>):
    %least = tile.reduce ins(%x : tensor<4x6xf32>) domain [4, 6] parallel 0 : i64 maps [#map] epilogue_maps [] initial [0x7f800000 : f32] {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.minimumf %1, %0 : f32
      tile.yield %2 : f32
    } epilogue {
    ^bb0(%3: f32):
      %4 = arith.constant 0.000000e+00 : f32
      %5 = arith.minimumf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<f32>
    %total = tile.reduce ins(%x : tensor<4x6xf32>) domain [4, 6] parallel 0 : i64 maps [#map] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.addf %7, %6 : f32
      tile.yield %8 : f32
    } epilogue {
    ^bb0(%9: f32):
      tile.yield %9 : f32
    } -> tensor<f32>
    %range = tile.reduce ins(%x : tensor<4x6xf32>) epilogue_inputs(%least : tensor<f32>) domain [4, 6] parallel 0 : i64 maps [#map] epilogue_maps [#scalar] initial [0xff800000 : f32] {
    ^bb0(%10: f32, %11: f32):
      %12 = arith.maximumf %11, %10 : f32
      tile.yield %12 : f32
    } epilogue {
    ^bb0(%13: f32, %14: f32):
      %15 = arith.subf %13, %14 : f32
      tile.yield %15 : f32
    } -> tensor<f32>
    %late = tile.reduce ins(%x : tensor<4x6xf32>) epilogue_inputs(%total : tensor<f32>) domain [4, 6] parallel 0 : i64 maps [#map] epilogue_maps [#scalar] initial [0xff800000 : f32] {
    ^bb0(%16: f32, %17: f32):
      %18 = arith.maximumf %17, %16 : f32
      tile.yield %18 : f32
    } epilogue {
    ^bb0(%19: f32, %20: f32):
      %21 = arith.mulf %19, %20 : f32
      tile.yield %21 : f32
    } -> tensor<f32>
    pg.return [#pg.bytes<"least">, #pg.bytes<"total">, #pg.bytes<"range">, #pg.bytes<"late">], %least, %total, %range, %late : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
}
// -----
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<() -> ()>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4x6xf32>):
    %least, %range = tile.reduce ins(%x : tensor<4x6xf32>) domain [4, 6] parallel 0 : i64 maps [#map] epilogue_maps [] initial [0x7f800000 : f32, 0xff800000 : f32] {
    ^bb0(%0: f32, %1: f32, %2: f32):
      %3 = arith.minimumf %1, %0 : f32
      %4 = arith.maximumf %2, %0 : f32
      tile.yield %3, %4 : f32, f32
    } epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.constant 0.000000e+00 : f32
      %8 = arith.minimumf %5, %7 : f32
      %9 = arith.subf %6, %8 : f32
      tile.yield %8, %9 : f32, f32
    } -> tensor<f32>, tensor<f32>
    %total = tile.reduce ins(%x : tensor<4x6xf32>) domain [4, 6] parallel 0 : i64 maps [#map] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%10: f32, %11: f32):
      %12 = arith.addf %11, %10 : f32
      tile.yield %12 : f32
    } epilogue {
    ^bb0(%13: f32):
      tile.yield %13 : f32
    } -> tensor<f32>
    %late = tile.reduce ins(%x : tensor<4x6xf32>) epilogue_inputs(%total : tensor<f32>) domain [4, 6] parallel 0 : i64 maps [#map] epilogue_maps [#map1] initial [0xff800000 : f32] {
    ^bb0(%14: f32, %15: f32):
      %16 = arith.maximumf %15, %14 : f32
      tile.yield %16 : f32
    } epilogue {
    ^bb0(%17: f32, %18: f32):
      %19 = arith.mulf %17, %18 : f32
      tile.yield %19 : f32
    } -> tensor<f32>
    pg.return [#pg.bytes<"least">, #pg.bytes<"total">, #pg.bytes<"range">, #pg.bytes<"late">], %least, %total, %range, %late : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
}
