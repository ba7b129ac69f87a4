// Softmax is exp divided by its sum, after subtracting the maximum.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = graphcore.softmax %0 {axis = 1} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<2x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x3xf32>):
    %1 = graphcore.reduce_max %0 {axes = [1], keepdims = true} : (tensor<2x3xf32>) -> tensor<2x1xf32>
    %2 = graphcore.sub %0, %1 : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
    %3 = graphcore.exp_nonpositive %2 : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %4 = graphcore.reduce_sum %3 {axes = [1], keepdims = true} : (tensor<2x3xf32>) -> tensor<2x1xf32>
    %5 = graphcore.reciprocal %4 : (tensor<2x1xf32>) -> tensor<2x1xf32>
    %6 = graphcore.mul %3, %5 : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"v0">], %6 : tensor<2x3xf32>
  }
}
