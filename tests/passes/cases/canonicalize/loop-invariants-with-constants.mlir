// Operations before a loop take along what literals of its body decide, here the square roots.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<3xf32>, %w: tensor<3x3xf32>):
    %a, %b = graphcore.loop trips 4 carried (%h) captured (%x, %w) : (tensor<3xf32>, tensor<3xf32>, tensor<3x3xf32>) -> (tensor<3xf32>, tensor<4x8x3xf32>) {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %k: tensor<3xf32>, %m: tensor<3x3xf32>):
      %c = pg.constant #pg.data<seed 1 : tensor<3xf32>>
      %e = graphcore.exp %k : (tensor<3xf32>) -> tensor<3xf32>
      %f = graphcore.sqrt %c : (tensor<3xf32>) -> tensor<3xf32>
      %s = graphcore.mul %e, %f : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %t = graphcore.transpose %m {perm = [1, 0]} : (tensor<3x3xf32>) -> tensor<3x3xf32>
      %q = graphcore.reshape %p {shape = [1, 3]} : (tensor<3xf32>) -> tensor<1x3xf32>
      %g = graphcore.mat_mul %q, %t : (tensor<1x3xf32>, tensor<3x3xf32>) -> tensor<1x3xf32>
      %v = graphcore.reshape %g {shape = [3]} : (tensor<1x3xf32>) -> tensor<3xf32>
      %z = graphcore.add %v, %s : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %l = graphcore.broadcast %k {shape = [8, 3]} : (tensor<3xf32>) -> tensor<8x3xf32>
      pg.yield %z, %l : tensor<3xf32>, tensor<8x3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">], %a, %b : tensor<3xf32>, tensor<4x8x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<3xf32>, %w: tensor<3x3xf32>):
    %e = graphcore.exp %x : (tensor<3xf32>) -> tensor<3xf32>
    %c = pg.constant #pg.data<seed 1 : tensor<3xf32>>
    %f = graphcore.sqrt %c : (tensor<3xf32>) -> tensor<3xf32>
    %s = graphcore.mul %e, %f : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %t = graphcore.transpose %w {perm = [1, 0]} : (tensor<3x3xf32>) -> tensor<3x3xf32>
    %a, %b = graphcore.loop trips 4 carried (%h) captured (%x, %s, %t) : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3x3xf32>) -> (tensor<3xf32>, tensor<4x8x3xf32>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>, %k: tensor<3xf32>, %s_1: tensor<3xf32>, %t_1: tensor<3x3xf32>):
      %q = graphcore.reshape %p {shape = [1, 3]} : (tensor<3xf32>) -> tensor<1x3xf32>
      %g = graphcore.mat_mul %q, %t_1 : (tensor<1x3xf32>, tensor<3x3xf32>) -> tensor<1x3xf32>
      %v = graphcore.reshape %g {shape = [3]} : (tensor<1x3xf32>) -> tensor<3xf32>
      %z = graphcore.add %v, %s_1 : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %l = graphcore.broadcast %k {shape = [8, 3]} : (tensor<3xf32>) -> tensor<8x3xf32>
      pg.yield %z, %l : tensor<3xf32>, tensor<8x3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">], %a, %b : tensor<3xf32>, tensor<4x8x3xf32>
  }
}
