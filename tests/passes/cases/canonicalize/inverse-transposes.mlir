// Two inverse transposes are dropped.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = graphcore.transpose %0 {perm = [1, 0]} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %2 = graphcore.transpose %1 {perm = [1, 0]} : (tensor<3x2xf32>) -> tensor<2x3xf32>
    %3 = graphcore.relu %2 : (tensor<2x3xf32>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"v2">], %3 : tensor<2x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = graphcore.relu %0 : (tensor<2x3xf32>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"v2">], %1 : tensor<2x3xf32>
  }
}
