// Moves literals into the body, whether they are captured or carried without a change.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">] {
  ^bb0(%h: tensor<3xf32>):
    %c = pg.constant #pg.data<seed 1 : tensor<3xf32>>
    %d = pg.constant #pg.data<seed 2 : tensor<3xf32>>
    %a, %b = graphcore.loop trips 4 carried (%h, %d) captured (%c) : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<3xf32>, %k: tensor<3xf32>):
      %s = graphcore.mul %p, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %t = graphcore.add %s, %q : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %t, %q : tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">] {
  ^bb0(%h: tensor<3xf32>):
    %a = graphcore.loop trips 4 carried (%h) : (tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %q = pg.constant #pg.data<seed 2 : tensor<3xf32>>
      %k = pg.constant #pg.data<seed 1 : tensor<3xf32>>
      %s = graphcore.mul %p, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %t = graphcore.add %s, %q : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %t : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
