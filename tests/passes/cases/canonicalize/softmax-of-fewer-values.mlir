// The weights of attention are not normalized, but its results, which are fewer; not where other operations read them.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"s">, #pg.bytes<"v">] {
  ^bb0(%s: tensor<2x3x8xf32>, %v: tensor<2x8x4xf32>):
    %m = graphcore.reduce_max %s {axes = [2], keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
    %d = graphcore.sub %s, %m : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
    %e = graphcore.exp_nonpositive %d : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
    %t = graphcore.reduce_sum %e {axes = [2], keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
    %r = graphcore.reciprocal %t : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
    %p = graphcore.mul %e, %r : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
    %y = graphcore.mat_mul %p, %v : (tensor<2x3x8xf32>, tensor<2x8x4xf32>) -> tensor<2x3x4xf32>
    %p1 = graphcore.mul %e, %r : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
    %z = graphcore.mat_mul %p1, %v : (tensor<2x3x8xf32>, tensor<2x8x4xf32>) -> tensor<2x3x4xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">, #pg.bytes<"p">], %y, %z, %p1 : tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"s">, #pg.bytes<"v">] {
  ^bb0(%s: tensor<2x3x8xf32>, %v: tensor<2x8x4xf32>):
    %m = graphcore.reduce_max %s {axes = [2], keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
    %d = graphcore.sub %s, %m : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
    %e = graphcore.exp_nonpositive %d : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
    %t = graphcore.reduce_sum %e {axes = [2], keepdims = true} : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
    %r = graphcore.reciprocal %t : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
    %0 = graphcore.mat_mul %e, %v : (tensor<2x3x8xf32>, tensor<2x8x4xf32>) -> tensor<2x3x4xf32>
    %y = graphcore.mul %0, %r : (tensor<2x3x4xf32>, tensor<2x3x1xf32>) -> tensor<2x3x4xf32>
    %p1 = graphcore.mul %e, %r : (tensor<2x3x8xf32>, tensor<2x3x1xf32>) -> tensor<2x3x8xf32>
    %z = graphcore.mat_mul %p1, %v : (tensor<2x3x8xf32>, tensor<2x8x4xf32>) -> tensor<2x3x4xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">, #pg.bytes<"p">], %y, %z, %p1 : tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x8xf32>
  }
}
