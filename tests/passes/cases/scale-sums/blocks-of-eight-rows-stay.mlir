// Blocks of eight rows with a scale stay: there would be too many sums.
// -p scale-sums{streamed-l2=0}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x16xf32>):
    %w = pg.constant #pg.data<"000306090c0f0205080b0e0104070a0d000306090c0f0205080b0e0104070a0d" : tensor<2x16xi8>>
    %s = pg.constant #pg.data<"0000803f000000400000803f00000040" : tensor<2x2x1xf32>>
    %0 = graphcore.reshape %w {shape = [2, 2, 8]} : (tensor<2x16xi8>) -> tensor<2x2x8xi8>
    %1 = graphcore.cast %0 {to = f32} : (tensor<2x2x8xi8>) -> tensor<2x2x8xf32>
    %2 = graphcore.mul %1, %s : (tensor<2x2x8xf32>, tensor<2x2x1xf32>) -> tensor<2x2x8xf32>
    %3 = graphcore.reshape %2 {shape = [2, 16]} : (tensor<2x2x8xf32>) -> tensor<2x16xf32>
    %4 = graphcore.transpose %3 {perm = [1, 0]} : (tensor<2x16xf32>) -> tensor<16x2xf32>
    %y = graphcore.mat_mul %x, %4 : (tensor<1x16xf32>, tensor<16x2xf32>) -> tensor<1x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x16xf32>):
    %w = pg.constant #pg.data<"000306090c0f0205080b0e0104070a0d000306090c0f0205080b0e0104070a0d" : tensor<2x16xi8>>
    %s = pg.constant #pg.data<"0000803f000000400000803f00000040" : tensor<2x2x1xf32>>
    %0 = graphcore.reshape %w {shape = [2, 2, 8]} : (tensor<2x16xi8>) -> tensor<2x2x8xi8>
    %1 = graphcore.cast %0 {to = f32} : (tensor<2x2x8xi8>) -> tensor<2x2x8xf32>
    %2 = graphcore.mul %1, %s : (tensor<2x2x8xf32>, tensor<2x2x1xf32>) -> tensor<2x2x8xf32>
    %3 = graphcore.reshape %2 {shape = [2, 16]} : (tensor<2x2x8xf32>) -> tensor<2x16xf32>
    %4 = graphcore.transpose %3 {perm = [1, 0]} : (tensor<2x16xf32>) -> tensor<16x2xf32>
    %y = graphcore.mat_mul %x, %4 : (tensor<1x16xf32>, tensor<16x2xf32>) -> tensor<1x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2xf32>
  }
}
