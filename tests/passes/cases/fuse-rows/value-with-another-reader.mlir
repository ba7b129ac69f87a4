// A value with a reader outside the nest is a result of the nest; its view follows.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4x8xf32>):
    %1 = tile.reduce ins(%0 : tensor<4x8xf32>) domain [4, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.maximumf %3, %2 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<4xf32>
    %6 = tile.view %1 : tensor<4xf32> -> tensor<4x1xf32>
    %7 = tile.map ins(%0, %1 : tensor<4x8xf32>, tensor<4xf32>) domain [4, 8] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
    ^bb0(%8: f32, %9: f32):
      %10 = arith.subf %8, %9 : f32
      tile.yield %10 : f32
    } -> tensor<4x8xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"m">], %7, %6 : tensor<4x8xf32>, tensor<4x1xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4x8xf32>):
    %1, %2 = tile.fused ins(%0 : tensor<4x8xf32>) domain [4] steps [4] {
    ^bb0(%3: tensor<4x8xf32>):
      %4 = tile.reduce ins(%3 : tensor<4x8xf32>) domain [4, 8] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0xff800000 : f32] {
      ^bb0(%5: f32, %6: f32):
        %7 = arith.maximumf %6, %5 : f32
        tile.yield %7 : f32
      } epilogue {
      ^bb0(%8: f32):
        tile.yield %8 : f32
      } -> tensor<4xf32>
      %9 = tile.map ins(%3, %4 : tensor<4x8xf32>, tensor<4xf32>) domain [4, 8] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
      ^bb0(%10: f32, %11: f32):
        %12 = arith.subf %10, %11 : f32
        tile.yield %12 : f32
      } -> tensor<4x8xf32>
      tile.yield %4, %9 : tensor<4xf32>, tensor<4x8xf32>
    } -> tensor<4xf32>, tensor<4x8xf32>
    %3 = tile.view %1 : tensor<4xf32> -> tensor<4x1xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"m">], %2, %3 : tensor<4x8xf32>, tensor<4x1xf32>
  }
}
