// A reduction of columns stays separate: adjacent columns are contiguous, as vector lanes need them.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<8x4xf32>):
    %1 = tile.reduce ins(%0 : tensor<8x4xf32>) domain [4, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d1, d0)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.maximumf %3, %2 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<4xf32>
    %6 = tile.map ins(%0, %1 : tensor<8x4xf32>, tensor<4xf32>) domain [8, 4] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>] {
    ^bb0(%7: f32, %8: f32):
      %9 = arith.subf %7, %8 : f32
      %10 = math.exp %9 : f32
      tile.yield %10 : f32
    } -> tensor<8x4xf32>
    %11 = tile.reduce ins(%6 : tensor<8x4xf32>) domain [4, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d1, d0)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%12: f32, %13: f32):
      %14 = arith.addf %13, %12 : f32
      tile.yield %14 : f32
    } epilogue {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<4xf32>
    %16 = tile.map ins(%11 : tensor<4xf32>) domain [1, 4] maps [affine_map<(d0, d1) -> (d1)>] {
    ^bb0(%17: f32):
      %18 = arith.constant 1.000000e+00 : f32
      %19 = arith.divf %18, %17 : f32
      tile.yield %19 : f32
    } -> tensor<1x4xf32>
    %20 = tile.map ins(%6, %16 : tensor<8x4xf32>, tensor<1x4xf32>) domain [8, 4] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (0, d1)>] {
    ^bb0(%21: f32, %22: f32):
      %23 = arith.mulf %21, %22 : f32
      tile.yield %23 : f32
    } -> tensor<8x4xf32>
    pg.return [#pg.bytes<"y">], %20 : tensor<8x4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<8x4xf32>):
    %1 = tile.reduce ins(%0 : tensor<8x4xf32>) domain [4, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d1, d0)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.maximumf %3, %2 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<4xf32>
    %6 = tile.map ins(%0, %1 : tensor<8x4xf32>, tensor<4xf32>) domain [8, 4] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>] {
    ^bb0(%7: f32, %8: f32):
      %9 = arith.subf %7, %8 : f32
      %10 = math.exp %9 : f32
      tile.yield %10 : f32
    } -> tensor<8x4xf32>
    %11 = tile.reduce ins(%6 : tensor<8x4xf32>) domain [4, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d1, d0)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%12: f32, %13: f32):
      %14 = arith.addf %13, %12 : f32
      tile.yield %14 : f32
    } epilogue {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<4xf32>
    %16 = tile.map ins(%11 : tensor<4xf32>) domain [1, 4] maps [affine_map<(d0, d1) -> (d1)>] {
    ^bb0(%17: f32):
      %18 = arith.constant 1.000000e+00 : f32
      %19 = arith.divf %18, %17 : f32
      tile.yield %19 : f32
    } -> tensor<1x4xf32>
    %20 = tile.map ins(%6, %16 : tensor<8x4xf32>, tensor<1x4xf32>) domain [8, 4] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (0, d1)>] {
    ^bb0(%21: f32, %22: f32):
      %23 = arith.mulf %21, %22 : f32
      tile.yield %23 : f32
    } -> tensor<8x4xf32>
    pg.return [#pg.bytes<"y">], %20 : tensor<8x4xf32>
  }
}
