// A scale moves to a literal, where folding it is free, and does not move back.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x2xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x2xf32>>
    %s = pg.constant #pg.data<"0000003f" : tensor<1xf32>>
    %0 = graphcore.mul %x, %s : (tensor<1x2xf32>, tensor<1xf32>) -> tensor<1x2xf32>
    %1 = graphcore.transpose %w {perm = [1, 0]} : (tensor<8x2xf32>) -> tensor<2x8xf32>
    %y = graphcore.mat_mul %0, %1 : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    %v = pg.constant #pg.data<seed 2 : tensor<2x8xf32>>
    %z = graphcore.mat_mul %0, %v : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    %t = graphcore.mul %x, %s : (tensor<1x2xf32>, tensor<1xf32>) -> tensor<1x2xf32>
    %u = pg.constant #pg.data<seed 3 : tensor<2x8xf32>>
    %a = graphcore.mat_mul %t, %u : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">, #pg.bytes<"a">], %y, %z, %a : tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x2xf32>):
    %w = pg.constant #pg.data<seed 1 : tensor<8x2xf32>>
    %s = pg.constant #pg.data<"0000003f" : tensor<1xf32>>
    %0 = graphcore.mul %x, %s : (tensor<1x2xf32>, tensor<1xf32>) -> tensor<1x2xf32>
    %1 = graphcore.transpose %w {perm = [1, 0]} : (tensor<8x2xf32>) -> tensor<2x8xf32>
    %y = graphcore.mat_mul %0, %1 : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    %v = pg.constant #pg.data<seed 2 : tensor<2x8xf32>>
    %z = graphcore.mat_mul %0, %v : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    %u = pg.constant #pg.data<seed 3 : tensor<2x8xf32>>
    %2 = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %3 = graphcore.mul %u, %2 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %a = graphcore.mat_mul %x, %3 : (tensor<1x2xf32>, tensor<2x8xf32>) -> tensor<1x8xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">, #pg.bytes<"a">], %y, %z, %a : tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>
  }
}
