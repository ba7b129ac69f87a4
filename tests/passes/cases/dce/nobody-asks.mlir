// What no output needs goes.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xf32>):
    %1 = graphcore.relu %0 : (tensor<3xf32>) -> tensor<3xf32>
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
