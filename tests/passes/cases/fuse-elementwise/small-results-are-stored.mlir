// Without vectors, bytes that are read as floats are stored as bytes: the first map stays.
// -p fuse-elementwise{is-scalar=true}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = tile.map ins(%0 : tensor<2x3xf32>) domain [2, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb1(%2: f32):
      %3 = math.roundeven %2 : f32
      %4 = arith.fptosi %3 : f32 to i8
      tile.yield %4 : i8
    } -> tensor<2x3xi8>
    %5 = tile.map ins(%1 : tensor<2x3xi8>) domain [2, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb2(%6: i8):
      %7 = arith.sitofp %6 : i8 to f32
      tile.yield %7 : f32
    } -> tensor<2x3xf32>
    %8 = tile.map ins(%5 : tensor<2x3xf32>) domain [2, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb3(%9: f32):
      %10 = arith.addf %9, %9 : f32
      tile.yield %10 : f32
    } -> tensor<2x3xf32>
    pg.return [#pg.bytes<"y">], %8 : tensor<2x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = tile.map ins(%0 : tensor<2x3xf32>) domain [2, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%2: f32):
      %3 = math.roundeven %2 : f32
      %4 = arith.fptosi %3 : f32 to i8
      tile.yield %4 : i8
    } -> tensor<2x3xi8>
    %5 = tile.map ins(%1 : tensor<2x3xi8>) domain [2, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%6: i8):
      %7 = arith.sitofp %6 : i8 to f32
      %8 = arith.addf %7, %7 : f32
      tile.yield %8 : f32
    } -> tensor<2x3xf32>
    pg.return [#pg.bytes<"y">], %5 : tensor<2x3xf32>
  }
}
