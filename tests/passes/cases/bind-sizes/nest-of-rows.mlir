// The row loop of a nest ends at the size, which is an input by now.
// -p bind-sizes
builtin.module attributes {sizes = [#pg.size<"N" 1 to 7 inputs ("x" axis 0 times 1) outputs ()>]} {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"N">] {
  ^bb0(%x: tensor<7x6xf32>, %N: tensor<i64>):
    %0 = tile.reduce ins(%x : tensor<7x6xf32>) domain [7, 6] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%1: f32, %2: f32):
      %3 = arith.maximumf %2, %1 : f32
      tile.yield %3 : f32
    } epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<7xf32>
    %5 = tile.map ins(%x, %0 : tensor<7x6xf32>, tensor<7xf32>) domain [7, 6] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.subf %6, %7 : f32
      %9 = math.exp %8 : f32
      tile.yield %9 : f32
    } -> tensor<7x6xf32>
    %10 = tile.reduce ins(%5 : tensor<7x6xf32>) domain [7, 6] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%11: f32, %12: f32):
      %13 = arith.addf %12, %11 : f32
      tile.yield %13 : f32
    } epilogue {
    ^bb0(%14: f32):
      %15 = arith.constant 1.000000e+00 : f32
      %16 = arith.divf %15, %14 : f32
      tile.yield %16 : f32
    } -> tensor<7xf32>
    %y = tile.map ins(%5, %10 : tensor<7x6xf32>, tensor<7xf32>) domain [7, 6] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
    ^bb0(%17: f32, %18: f32):
      %19 = arith.mulf %17, %18 : f32
      tile.yield %19 : f32
    } -> tensor<7x6xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<7x6xf32>
  }
}
// -----
builtin.module attributes {sizes = [#pg.size<"N" 1 to 7 inputs ("x" axis 0 times 1) outputs ("y" axis 0 times 1)>]} {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"N">] {
  ^bb0(%x: tensor<7x6xf32>, %N: tensor<i64>):
    %0 = tile.reduce ins(%x : tensor<7x6xf32>) domain [7, 6] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%1: f32, %2: f32):
      %3 = arith.maximumf %2, %1 : f32
      tile.yield %3 : f32
    } epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } {running = #tile.running<loop 0 to 1 of size 0>} -> tensor<7xf32>
    %5 = tile.map ins(%x, %0 : tensor<7x6xf32>, tensor<7xf32>) domain [7, 6] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
    ^bb0(%6: f32, %7: f32):
      %8 = arith.subf %6, %7 : f32
      %9 = math.exp %8 : f32
      tile.yield %9 : f32
    } {running = #tile.running<loop 0 to 1 of size 0>} -> tensor<7x6xf32>
    %10 = tile.reduce ins(%5 : tensor<7x6xf32>) domain [7, 6] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%11: f32, %12: f32):
      %13 = arith.addf %12, %11 : f32
      tile.yield %13 : f32
    } epilogue {
    ^bb0(%14: f32):
      %15 = arith.constant 1.000000e+00 : f32
      %16 = arith.divf %15, %14 : f32
      tile.yield %16 : f32
    } {running = #tile.running<loop 0 to 1 of size 0>} -> tensor<7xf32>
    %y = tile.map ins(%5, %10 : tensor<7x6xf32>, tensor<7xf32>) domain [7, 6] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
    ^bb0(%17: f32, %18: f32):
      %19 = arith.mulf %17, %18 : f32
      tile.yield %19 : f32
    } {running = #tile.running<loop 0 to 1 of size 0>} -> tensor<7x6xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<7x6xf32>
  }
}
