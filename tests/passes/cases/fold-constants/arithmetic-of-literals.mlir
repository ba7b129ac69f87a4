// Operations on literals become literals.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.constant #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = pg.constant #pg.data<"0000404000008040" : tensor<2xf32>>
    %3 = graphcore.mul %1, %2 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %4 = graphcore.add %0, %3 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.constant #pg.data<"0000404000000041" : tensor<2xf32>>
    %2 = graphcore.add %0, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<2xf32>
  }
}
