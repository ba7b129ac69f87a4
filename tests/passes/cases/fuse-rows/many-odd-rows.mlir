// 69 rows run 8 at a time, and the last 5 together: there are at least eight steps.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<69x8xf32>):
    %1 = tile.reduce ins(%0 : tensor<69x8xf32>) domain [69, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.maximumf %3, %2 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<69xf32>
    %6 = tile.map ins(%0, %1 : tensor<69x8xf32>, tensor<69xf32>) domain [69, 8] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
    ^bb0(%7: f32, %8: f32):
      %9 = arith.subf %7, %8 : f32
      %10 = math.exp %9 : f32
      tile.yield %10 : f32
    } -> tensor<69x8xf32>
    %11 = tile.reduce ins(%6 : tensor<69x8xf32>) domain [69, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%12: f32, %13: f32):
      %14 = arith.addf %13, %12 : f32
      tile.yield %14 : f32
    } epilogue {
    ^bb0(%15: f32):
      tile.yield %15 : f32
    } -> tensor<69xf32>
    %16 = tile.map ins(%11 : tensor<69xf32>) domain [69, 1] maps [affine_map<(d0, d1) -> (d0)>] {
    ^bb0(%17: f32):
      %18 = arith.constant 1.000000e+00 : f32
      %19 = arith.divf %18, %17 : f32
      tile.yield %19 : f32
    } -> tensor<69x1xf32>
    %20 = tile.map ins(%6, %16 : tensor<69x8xf32>, tensor<69x1xf32>) domain [69, 8] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>] {
    ^bb0(%21: f32, %22: f32):
      %23 = arith.mulf %21, %22 : f32
      tile.yield %23 : f32
    } -> tensor<69x8xf32>
    pg.return [#pg.bytes<"y">], %20 : tensor<69x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<69x8xf32>):
    %1 = tile.fused ins(%0 : tensor<69x8xf32>) domain [69] steps [8] {
    ^bb0(%2: tensor<69x8xf32>):
      %3 = tile.reduce ins(%2 : tensor<69x8xf32>) domain [69, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0xff800000 : f32] {
      ^bb0(%4: f32, %5: f32):
        %6 = arith.maximumf %5, %4 : f32
        tile.yield %6 : f32
      } epilogue {
      ^bb0(%7: f32):
        tile.yield %7 : f32
      } -> tensor<69xf32>
      %8 = tile.map ins(%2, %3 : tensor<69x8xf32>, tensor<69xf32>) domain [69, 8] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
      ^bb0(%9: f32, %10: f32):
        %11 = arith.subf %9, %10 : f32
        %12 = math.exp %11 : f32
        tile.yield %12 : f32
      } -> tensor<69x8xf32>
      %13 = tile.reduce ins(%8 : tensor<69x8xf32>) domain [69, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
      ^bb0(%14: f32, %15: f32):
        %16 = arith.addf %15, %14 : f32
        tile.yield %16 : f32
      } epilogue {
      ^bb0(%17: f32):
        tile.yield %17 : f32
      } -> tensor<69xf32>
      %18 = tile.map ins(%13 : tensor<69xf32>) domain [69, 1] maps [affine_map<(d0, d1) -> (d0)>] {
      ^bb0(%19: f32):
        %20 = arith.constant 1.000000e+00 : f32
        %21 = arith.divf %20, %19 : f32
        tile.yield %21 : f32
      } -> tensor<69x1xf32>
      %22 = tile.map ins(%8, %18 : tensor<69x8xf32>, tensor<69x1xf32>) domain [69, 8] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>] {
      ^bb0(%23: f32, %24: f32):
        %25 = arith.mulf %23, %24 : f32
        tile.yield %25 : f32
      } -> tensor<69x8xf32>
      tile.yield %22 : tensor<69x8xf32>
    } -> tensor<69x8xf32>
    pg.return [#pg.bytes<"y">], %1 : tensor<69x8xf32>
  }
}
