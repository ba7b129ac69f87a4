// Operations that no output needs are dropped, and then those that only these needed.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xf32>):
    %1 = graphcore.relu %0 : (tensor<3xf32>) -> tensor<3xf32>
    %2 = graphcore.exp %1 : (tensor<3xf32>) -> tensor<3xf32>
    %3 = graphcore.neg %2 : (tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"v1">], %1 : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xf32>):
    %1 = graphcore.relu %0 : (tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"v1">], %1 : tensor<3xf32>
  }
}
