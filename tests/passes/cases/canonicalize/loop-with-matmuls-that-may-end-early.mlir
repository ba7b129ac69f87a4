// This stays: a loop that may end early does not need the products of all rows.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"limit">] {
  ^bb0(%h: tensor<2x4xf32>, %x: tensor<5x2x3xf32>, %w: tensor<3x4xf32>, %limit: tensor<i64>):
    %a = graphcore.loop trips 5 limit %limit carried (%h) scanned (%x) captured (%w) : (tensor<i64>, tensor<2x4xf32>, tensor<5x2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32> {
    ^bb1(%i: tensor<i64>, %p: tensor<2x4xf32>, %q: tensor<2x3xf32>, %k: tensor<3x4xf32>):
      %s = graphcore.mat_mul %q, %k : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
      %y = graphcore.add %p, %s : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      pg.yield %y : tensor<2x4xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<2x4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"limit">] {
  ^bb0(%h: tensor<2x4xf32>, %x: tensor<5x2x3xf32>, %w: tensor<3x4xf32>, %limit: tensor<i64>):
    %a = graphcore.loop trips 5 limit %limit carried (%h) scanned (%x) captured (%w) : (tensor<i64>, tensor<2x4xf32>, tensor<5x2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<2x4xf32>, %q: tensor<2x3xf32>, %k: tensor<3x4xf32>):
      %s = graphcore.mat_mul %q, %k : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
      %y = graphcore.add %p, %s : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      pg.yield %y : tensor<2x4xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<2x4xf32>
  }
}
