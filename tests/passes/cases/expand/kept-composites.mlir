// Operations named in `keep` are not expanded, in any graph.
// -p expand{keep=softmax}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x3xf32>):
    %m = graphcore.reduce_mean %x {axes = [0], keepdims = true} : (tensor<2x3xf32>) -> tensor<1x3xf32>
    %y = graphcore.softmax %m {axis = 1} : (tensor<1x3xf32>) -> tensor<1x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x3xf32>):
    %0 = graphcore.reduce_sum %x {axes = [0], keepdims = true} : (tensor<2x3xf32>) -> tensor<1x3xf32>
    %1 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %m = graphcore.div %0, %1 : (tensor<1x3xf32>, tensor<f32>) -> tensor<1x3xf32>
    %y = graphcore.softmax %m {axis = 1} : (tensor<1x3xf32>) -> tensor<1x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3xf32>
  }
}
