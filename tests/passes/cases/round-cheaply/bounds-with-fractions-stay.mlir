// A number that is clipped to 0.5 is none that was rounded: all stays.
// -p round-cheaply
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %q = tile.map ins(%x : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%0: f32):
      %s = arith.constant 3.700000e-02 : f32
      %d = arith.divf %0, %s : f32
      %r = math.roundeven %d : f32
      %z = arith.constant 1.000000e+00 : f32
      %m = arith.addf %r, %z : f32
      %l = arith.constant 5.000000e-01 : f32
      %c = arith.cmpf ogt, %m, %l : f32
      %k = arith.select %c, %m, %l : f32
      %h = arith.constant 9.000000e+00 : f32
      %e = arith.minimumf %k, %h : f32
      %i = arith.fptosi %e : f32 to i8
      tile.yield %i : i8
    } -> tensor<4xi8>
    pg.return [#pg.bytes<"q">], %q : tensor<4xi8>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %q = tile.map ins(%x : tensor<4xf32>) domain [4] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%0: f32):
      %s = arith.constant 3.700000e-02 : f32
      %d = arith.divf %0, %s : f32
      %r = math.roundeven %d : f32
      %z = arith.constant 1.000000e+00 : f32
      %m = arith.addf %r, %z : f32
      %l = arith.constant 5.000000e-01 : f32
      %c = arith.cmpf ogt, %m, %l : f32
      %k = arith.select %c, %m, %l : f32
      %h = arith.constant 9.000000e+00 : f32
      %e = arith.minimumf %k, %h : f32
      %i = arith.fptosi %e : f32 to i8
      tile.yield %i : i8
    } -> tensor<4xi8>
    pg.return [#pg.bytes<"q">], %q : tensor<4xi8>
  }
}
