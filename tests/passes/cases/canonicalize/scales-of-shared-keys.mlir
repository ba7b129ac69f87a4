// Both factors have a scale and as many elements: the query gets both, as the keys are copies that packing reads in place.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"q">, #pg.bytes<"k">] {
  ^bb0(%q: tensor<4x8x2xf32>, %k: tensor<2x1x8x2xf32>):
    %s = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %qs = graphcore.mul %q, %s : (tensor<4x8x2xf32>, tensor<f32>) -> tensor<4x8x2xf32>
    %b = graphcore.broadcast %k {shape = [2, 2, 8, 2]} : (tensor<2x1x8x2xf32>) -> tensor<2x2x8x2xf32>
    %r = graphcore.reshape %b {shape = [4, 8, 2]} : (tensor<2x2x8x2xf32>) -> tensor<4x8x2xf32>
    %t = graphcore.transpose %r {perm = [0, 2, 1]} : (tensor<4x8x2xf32>) -> tensor<4x2x8xf32>
    %ts = graphcore.mul %t, %s : (tensor<4x2x8xf32>, tensor<f32>) -> tensor<4x2x8xf32>
    %y = graphcore.mat_mul %qs, %ts : (tensor<4x8x2xf32>, tensor<4x2x8xf32>) -> tensor<4x8x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<4x8x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"q">, #pg.bytes<"k">] {
  ^bb0(%q: tensor<4x8x2xf32>, %k: tensor<2x1x8x2xf32>):
    %b = graphcore.broadcast %k {shape = [2, 2, 8, 2]} : (tensor<2x1x8x2xf32>) -> tensor<2x2x8x2xf32>
    %r = graphcore.reshape %b {shape = [4, 8, 2]} : (tensor<2x2x8x2xf32>) -> tensor<4x8x2xf32>
    %t = graphcore.transpose %r {perm = [0, 2, 1]} : (tensor<4x8x2xf32>) -> tensor<4x2x8xf32>
    %0 = pg.constant #pg.data<"0000803e" : tensor<f32>>
    %1 = graphcore.mul %q, %0 : (tensor<4x8x2xf32>, tensor<f32>) -> tensor<4x8x2xf32>
    %y = graphcore.mat_mul %1, %t : (tensor<4x8x2xf32>, tensor<4x2x8xf32>) -> tensor<4x8x8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<4x8x8xf32>
  }
}
