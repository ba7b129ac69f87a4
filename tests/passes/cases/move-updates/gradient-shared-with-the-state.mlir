// Work for updates follows its operands: the state of `w` is updated before the forward pass ends.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<"0000003f0000803f000000bf0000403f" : tensor<4xf32>>
    %2 = pg.variable #pg.bytes<"v"> = #pg.data<"0000003f0000803f000000bf0000403f" : tensor<4xf32>>
    %3 = tile.map ins(%1, %0 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%4: f32, %5: f32):
      %6 = arith.mulf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<4xf32>
    %7 = tile.map ins(%2, %3 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%8: f32, %9: f32):
      %10 = arith.mulf %8, %9 : f32
      tile.yield %10 : f32
    } -> tensor<4xf32>
    %11 = pg.variable #pg.bytes<"Accl___w"> = #pg.data<"00000000000000000000000000000000" : tensor<4xf32>>
    %12 = tile.map ins(%0, %11 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%13: f32, %14: f32):
      %15 = arith.addf %13, %14 : f32
      tile.yield %15 : f32
    } -> tensor<4xf32>
    %16 = pg.variable #pg.bytes<"Accl___v"> = #pg.data<"00000000000000000000000000000000" : tensor<4xf32>>
    %17 = tile.map ins(%3, %16 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%18: f32, %19: f32):
      %20 = arith.addf %18, %19 : f32
      tile.yield %20 : f32
    } -> tensor<4xf32>
    %21 = tile.map ins(%12 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%22: f32):
      %23 = math.absf %22 : f32
      tile.yield %23 : f32
    } -> tensor<4xf32>
    %24 = tile.map ins(%1, %12 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%25: f32, %26: f32):
      %27 = arith.subf %25, %26 : f32
      tile.yield %27 : f32
    } -> tensor<4xf32>
    %28 = tile.map ins(%17 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%29: f32):
      %30 = math.absf %29 : f32
      tile.yield %30 : f32
    } -> tensor<4xf32>
    %31 = tile.map ins(%2, %17 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%32: f32, %33: f32):
      %34 = arith.subf %32, %33 : f32
      tile.yield %34 : f32
    } -> tensor<4xf32>
    pg.update <"Accl___w">, %21 : tensor<4xf32>
    pg.update <"w">, %24 : tensor<4xf32>
    pg.update <"Accl___v">, %28 : tensor<4xf32>
    pg.update <"v">, %31 : tensor<4xf32>
    pg.return [#pg.bytes<"y">], %7 : tensor<4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<"0000003f0000803f000000bf0000403f" : tensor<4xf32>>
    %2 = pg.variable #pg.bytes<"v"> = #pg.data<"0000003f0000803f000000bf0000403f" : tensor<4xf32>>
    %3 = pg.variable #pg.bytes<"Accl___w"> = #pg.data<"00000000000000000000000000000000" : tensor<4xf32>>
    %4 = pg.variable #pg.bytes<"Accl___v"> = #pg.data<"00000000000000000000000000000000" : tensor<4xf32>>
    %5 = tile.map ins(%0, %3 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.addf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<4xf32>
    %9 = tile.map ins(%5 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%10: f32):
      %11 = math.absf %10 : f32
      tile.yield %11 : f32
    } -> tensor<4xf32>
    %12 = tile.map ins(%1, %0 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%13: f32, %14: f32):
      %15 = arith.mulf %13, %14 : f32
      tile.yield %15 : f32
    } -> tensor<4xf32>
    %16 = tile.map ins(%1, %5 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%17: f32, %18: f32):
      %19 = arith.subf %17, %18 : f32
      tile.yield %19 : f32
    } -> tensor<4xf32>
    %20 = tile.map ins(%12, %4 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%21: f32, %22: f32):
      %23 = arith.addf %21, %22 : f32
      tile.yield %23 : f32
    } -> tensor<4xf32>
    %24 = tile.map ins(%20 : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%25: f32):
      %26 = math.absf %25 : f32
      tile.yield %26 : f32
    } -> tensor<4xf32>
    %27 = tile.map ins(%2, %12 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%28: f32, %29: f32):
      %30 = arith.mulf %28, %29 : f32
      tile.yield %30 : f32
    } -> tensor<4xf32>
    %31 = tile.map ins(%2, %20 : tensor<4xf32>, tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%32: f32, %33: f32):
      %34 = arith.subf %32, %33 : f32
      tile.yield %34 : f32
    } -> tensor<4xf32>
    pg.update <"Accl___w">, %9 : tensor<4xf32>
    pg.update <"w">, %16 : tensor<4xf32>
    pg.update <"Accl___v">, %24 : tensor<4xf32>
    pg.update <"v">, %31 : tensor<4xf32>
    pg.return [#pg.bytes<"y">], %27 : tensor<4xf32>
  }
}
