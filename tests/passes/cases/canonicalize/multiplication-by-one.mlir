// x * 1 is x.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xf32>):
    %1 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %2 = graphcore.mul %0, %1 : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
    %3 = graphcore.relu %2 : (tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"v1">], %3 : tensor<3xf32>
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
