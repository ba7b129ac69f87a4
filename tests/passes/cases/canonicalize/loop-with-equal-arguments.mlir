// Merges two arguments that are the same captured or scanned value.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"r">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<3xf32>, %r: tensor<4x3xf32>):
    %a = graphcore.loop trips 4 carried (%h) scanned (%r, %r) captured (%x, %x) : (tensor<3xf32>, tensor<4x3xf32>, tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %u: tensor<3xf32>, %v: tensor<3xf32>, %k: tensor<3xf32>, %l: tensor<3xf32>):
      %s = graphcore.mul %p, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %t = graphcore.add %s, %u : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %w = graphcore.mul %t, %l : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %z = graphcore.sub %w, %v : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %z : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"r">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<3xf32>, %r: tensor<4x3xf32>):
    %a = graphcore.loop trips 4 carried (%h) scanned (%r) captured (%x) : (tensor<3xf32>, tensor<4x3xf32>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>, %u: tensor<3xf32>, %k: tensor<3xf32>):
      %s = graphcore.mul %p, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %t = graphcore.add %s, %u : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %w = graphcore.mul %t, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %z = graphcore.sub %w, %u : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %z : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
