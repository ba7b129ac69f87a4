// Two blocks of sixteen rows have different scales: two sums for each result, scaled and added.
// -p scale-sums{streamed-l2=0}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x32xf32>):
    %w = pg.constant #pg.data<"00070e151c232a31383f464d545b626970777e858c939aa1a8afb6bdc4cbd2d9e0e7eef5fc030a11181f262d343b424950575e656c737a81888f969da4abb2b9" : tensor<32x2xi8>>
    %s = pg.constant #pg.data<"0000803f00000040000040400000803e" : tensor<2x1x2xf32>>
    %0 = graphcore.broadcast %s {shape = [2, 16, 2]} : (tensor<2x1x2xf32>) -> tensor<2x16x2xf32>
    %1 = graphcore.reshape %0 {shape = [32, 2]} : (tensor<2x16x2xf32>) -> tensor<32x2xf32>
    %2 = graphcore.cast %w {to = f32} : (tensor<32x2xi8>) -> tensor<32x2xf32>
    %3 = graphcore.mul %2, %1 : (tensor<32x2xf32>, tensor<32x2xf32>) -> tensor<32x2xf32>
    %y = graphcore.mat_mul %x, %3 : (tensor<2x32xf32>, tensor<32x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x32xf32>):
    %w = pg.constant #pg.data<"00070e151c232a31383f464d545b626970777e858c939aa1a8afb6bdc4cbd2d9e0e7eef5fc030a11181f262d343b424950575e656c737a81888f969da4abb2b9" : tensor<32x2xi8>>
    %0 = graphcore.reshape %x {shape = [2, 2, 16]} : (tensor<2x32xf32>) -> tensor<2x2x16xf32>
    %1 = graphcore.transpose %0 {perm = [1, 0, 2]} : (tensor<2x2x16xf32>) -> tensor<2x2x16xf32>
    %2 = graphcore.reshape %w {shape = [2, 16, 2]} : (tensor<32x2xi8>) -> tensor<2x16x2xi8>
    %3 = graphcore.cast %2 {to = f32} : (tensor<2x16x2xi8>) -> tensor<2x16x2xf32>
    %4 = graphcore.mat_mul %1, %3 : (tensor<2x2x16xf32>, tensor<2x16x2xf32>) -> tensor<2x2x2xf32>
    %5 = pg.constant #pg.data<"0000803f00000040000040400000803e" : tensor<2x1x2xf32>>
    %6 = graphcore.mul %4, %5 : (tensor<2x2x2xf32>, tensor<2x1x2xf32>) -> tensor<2x2x2xf32>
    %7 = graphcore.reduce_sum %6 {axes = [0], keepdims = false} : (tensor<2x2x2xf32>) -> tensor<2x2xf32>
    %y = graphcore.reshape %7 {shape = [2, 2]} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x2xf32>
  }
}
