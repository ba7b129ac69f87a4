// A number that is read with a sign, and has none, stays what its bits make of it: only the rounding changes.
// -p round-cheaply
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %q = tile.map ins(%x : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%0: f32):
      %s = arith.constant 3.700000e-02 : f32
      %d = arith.divf %0, %s : f32
      %r = math.roundeven %d : f32
      %z = arith.constant 1.280000e+02 : f32
      %m = arith.addf %r, %z : f32
      %l = arith.constant 0.000000e+00 : f32
      %c = arith.cmpf ogt, %m, %l : f32
      %k = arith.select %c, %m, %l : f32
      %h = arith.constant 2.550000e+02 : f32
      %e = arith.minimumf %k, %h : f32
      %i = arith.fptosi %e : f32 to i8
      %f = arith.sitofp %i : i8 to f32
      tile.yield %f : f32
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"q">], %q : tensor<4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %q = tile.map ins(%x : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%0: f32):
      %1 = arith.constant 27.0270252 : f32
      %2 = arith.constant 1.4559381e-06 : f32
      %3 = arith.mulf %0, %2 : f32
      %4 = math.fma %0, %1, %3 : f32
      %5 = arith.constant -1.280000e+02 : f32
      %6 = arith.cmpf ogt, %4, %5 : f32
      %7 = arith.select %6, %4, %5 : f32
      %8 = arith.constant 1.270000e+02 : f32
      %9 = arith.minimumf %7, %8 : f32
      %10 = math.roundeven %9 : f32
      %11 = arith.fptosi %10 : f32 to i32
      %12 = arith.constant 128 : i32
      %13 = arith.addi %11, %12 : i32
      %i = arith.trunci %13 : i32 to i8
      %f = arith.sitofp %i : i8 to f32
      tile.yield %f : f32
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"q">], %q : tensor<4xf32>
  }
}
