// A weight is updated before the end even if its old value is an output.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<"0000003f0000803f000000bf0000403f" : tensor<4xf32>>
    %2 = tile.map ins(%1, %0 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.mulf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<4xf32>
    %6 = tile.map ins(%2 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%7: f32):
      %8 = math.exp %7 : f32
      tile.yield %8 : f32
    } -> tensor<4xf32>
    %9 = tile.map ins(%1, %0 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%10: f32, %11: f32):
      %12 = arith.subf %10, %11 : f32
      tile.yield %12 : f32
    } -> tensor<4xf32>
    pg.update <"w">, %9 : tensor<4xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"w">], %6, %1 : tensor<4xf32>, tensor<4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<"0000003f0000803f000000bf0000403f" : tensor<4xf32>>
    %2 = tile.map ins(%1, %0 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.mulf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<4xf32>
    %6 = tile.map ins(%1, %0 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%7: f32, %8: f32):
      %9 = arith.subf %7, %8 : f32
      tile.yield %9 : f32
    } -> tensor<4xf32>
    %10 = tile.map ins(%2 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%11: f32):
      %12 = math.exp %11 : f32
      tile.yield %12 : f32
    } -> tensor<4xf32>
    pg.update <"w">, %6 : tensor<4xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"w">], %10, %1 : tensor<4xf32>, tensor<4xf32>
  }
}
