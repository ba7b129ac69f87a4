// A scalar constant is a literal in the body, not an operand.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<3xf32>):
    %half = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %y = graphcore.mul %x, %half : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<3xf32>):
    %half = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %y = tile.map ins(%x : tensor<3xf32>) domain [3] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%0: f32):
      %1 = arith.constant 5.000000e-01 : f32
      %2 = arith.mulf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3xf32>
  }
}
