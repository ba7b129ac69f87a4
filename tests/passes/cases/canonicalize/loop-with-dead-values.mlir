// Drops carried values that only feed themselves or each other, rows that nobody reads, and the captured
// and scanned values that only these used.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"r">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<3xf32>, %r: tensor<4x3xf32>):
    %a, %b, %c, %d, %e = graphcore.loop trips 4 carried (%h, %x, %x, %h) scanned (%r)
        captured (%x) : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<4x3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<4x3xf32>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>, %self: tensor<3xf32>, %one: tensor<3xf32>, %other: tensor<3xf32>, %row: tensor<3xf32>, %k: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      %t = graphcore.mul %self, %row : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %u = graphcore.add %p, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %t, %other, %one, %u : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"r">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<3xf32>, %r: tensor<4x3xf32>):
    %a = graphcore.loop trips 4 carried (%h) : (tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
