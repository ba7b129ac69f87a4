// Multiplies all rows by a matrix before the loop: a captured, literal or transposed one.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"v">] {
  ^bb0(%h: tensor<2x4xf32>, %x: tensor<5x2x3xf32>, %w: tensor<3x4xf32>, %v: tensor<5x3xf32>):
    %a = graphcore.loop trips 5 carried (%h) scanned (%x, %v) captured (%w) : (tensor<2x4xf32>, tensor<5x2x3xf32>, tensor<5x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32> {
    ^bb1(%i: tensor<i64>, %p: tensor<2x4xf32>, %q: tensor<2x3xf32>, %r: tensor<3xf32>, %k: tensor<3x4xf32>):
      %c = pg.constant #pg.data<seed 1 : tensor<3x4xf32>>
      %s = graphcore.mat_mul %q, %k : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
      %t = graphcore.reshape %r {shape = [1, 3]} : (tensor<3xf32>) -> tensor<1x3xf32>
      %u = graphcore.mat_mul %t, %c : (tensor<1x3xf32>, tensor<3x4xf32>) -> tensor<1x4xf32>
      %y = graphcore.add %p, %s : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %z = graphcore.add %y, %u : (tensor<2x4xf32>, tensor<1x4xf32>) -> tensor<2x4xf32>
      pg.yield %z : tensor<2x4xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<2x4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"v">] {
  ^bb0(%h: tensor<2x4xf32>, %x: tensor<5x2x3xf32>, %w: tensor<3x4xf32>, %v: tensor<5x3xf32>):
    %0 = graphcore.reshape %x {shape = [10, 3]} : (tensor<5x2x3xf32>) -> tensor<10x3xf32>
    %1 = graphcore.mat_mul %0, %w : (tensor<10x3xf32>, tensor<3x4xf32>) -> tensor<10x4xf32>
    %2 = graphcore.reshape %1 {shape = [5, 2, 4]} : (tensor<10x4xf32>) -> tensor<5x2x4xf32>
    %3 = pg.constant #pg.data<seed 1 : tensor<3x4xf32>>
    %4 = graphcore.mat_mul %v, %3 : (tensor<5x3xf32>, tensor<3x4xf32>) -> tensor<5x4xf32>
    %5 = graphcore.reshape %4 {shape = [5, 1, 4]} : (tensor<5x4xf32>) -> tensor<5x1x4xf32>
    %a = graphcore.loop trips 5 carried (%h) scanned (%2, %5) : (tensor<2x4xf32>, tensor<5x2x4xf32>, tensor<5x1x4xf32>) -> tensor<2x4xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<2x4xf32>, %s: tensor<2x4xf32>, %u: tensor<1x4xf32>):
      %y = graphcore.add %p, %s : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %z = graphcore.add %y, %u : (tensor<2x4xf32>, tensor<1x4xf32>) -> tensor<2x4xf32>
      pg.yield %z : tensor<2x4xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<2x4xf32>
  }
}
