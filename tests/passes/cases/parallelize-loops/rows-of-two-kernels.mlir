// Both kernels are divided along the rows: each thread finds the rows that it wrote in its own cache. A
// map of few elements is not parallelized.
// -p parallelize-loops{threads=2}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<64x16x128xf32>, %1: tensor<8x128xf32>):
    %2 = tile.map ins(%0 : tensor<64x16x128xf32>) domain [64, 16, 128] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
    ^bb0(%3: f32):
      %4 = arith.constant 0.000000e+00 : f32
      %5 = arith.maximumf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<64x16x128xf32>
    %6 = tile.map ins(%2 : tensor<64x16x128xf32>) domain [64, 16, 128] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
    ^bb0(%7: f32):
      %8 = math.exp %7 : f32
      tile.yield %8 : f32
    } -> tensor<64x16x128xf32>
    %9 = tile.map ins(%1 : tensor<8x128xf32>) domain [8, 128] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%10: f32):
      %11 = math.exp %10 : f32
      tile.yield %11 : f32
    } -> tensor<8x128xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %6, %9 : tensor<64x16x128xf32>, tensor<8x128xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<64x16x128xf32>, %1: tensor<8x128xf32>):
    %2 = tile.map ins(%0 : tensor<64x16x128xf32>) domain [64, 16, 128] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
    ^bb0(%3: f32):
      %4 = arith.constant 0.000000e+00 : f32
      %5 = arith.maximumf %3, %4 : f32
      tile.yield %5 : f32
    } {cut = #tile.cut<loop 0 in 6 of 21856>} -> tensor<64x16x128xf32>
    %6 = tile.map ins(%2 : tensor<64x16x128xf32>) domain [64, 16, 128] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
    ^bb0(%7: f32):
      %8 = math.exp %7 : f32
      tile.yield %8 : f32
    } {cut = #tile.cut<loop 0 in 6 of 21856>} -> tensor<64x16x128xf32>
    %9 = tile.map ins(%1 : tensor<8x128xf32>) domain [8, 128] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%10: f32):
      %11 = math.exp %10 : f32
      tile.yield %11 : f32
    } -> tensor<8x128xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %6, %9 : tensor<64x16x128xf32>, tensor<8x128xf32>
  }
}
