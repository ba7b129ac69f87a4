// A power with an exponent that is a multiple of 1/4 is a product of roots, if its base is not negative.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xf32>):
    %1 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %2 = pg.constant #pg.data<"000040bf" : tensor<f32>>
    %3 = graphcore.mul %0, %0 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %4 = graphcore.add %3, %1 : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
    %5 = graphcore.pow %4, %2 : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"v1">], %5 : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xf32>):
    %1 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %2 = graphcore.mul %0, %0 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %3 = graphcore.add %2, %1 : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>
    %4 = graphcore.sqrt %3 : (tensor<3xf32>) -> tensor<3xf32>
    %5 = graphcore.sqrt %4 : (tensor<3xf32>) -> tensor<3xf32>
    %6 = graphcore.mul %4, %5 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %7 = graphcore.reciprocal %6 : (tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"v1">], %7 : tensor<3xf32>
  }
}
