// Two equal operations become one.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xf32>):
    %1 = graphcore.exp %0 : (tensor<3xf32>) -> tensor<3xf32>
    %2 = graphcore.exp %0 : (tensor<3xf32>) -> tensor<3xf32>
    %3 = graphcore.add %1, %2 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"v2">], %3 : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xf32>):
    %1 = graphcore.exp %0 : (tensor<3xf32>) -> tensor<3xf32>
    %2 = graphcore.add %1, %1 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"v2">], %2 : tensor<3xf32>
  }
}
