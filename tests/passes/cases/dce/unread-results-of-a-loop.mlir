// Unread rows and carried values of a loop are dropped, and so are operands that only these needed.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"h">, #pg.bytes<"g">, #pg.bytes<"c">] {
  ^bb0(%x: tensor<3x2xf32>, %h: tensor<2xf32>, %g: tensor<2xf32>, %c: tensor<2xf32>):
    %h1, %g1, %rows = graphcore.loop trips 3 carried (%h, %g) scanned (%x)
        captured (%c) : (tensor<2xf32>, tensor<2xf32>, tensor<3x2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<3x2xf32>) {
    ^bb0(%turn: tensor<i64>, %a: tensor<2xf32>, %b: tensor<2xf32>, %row: tensor<2xf32>, %k: tensor<2xf32>):
      %0 = graphcore.add %a, %row : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %1 = graphcore.mul %b, %k : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      pg.yield %0, %1, %1 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
    }
    pg.return [#pg.bytes<"y">], %h1 : tensor<2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"h">, #pg.bytes<"g">, #pg.bytes<"c">] {
  ^bb0(%x: tensor<3x2xf32>, %h: tensor<2xf32>, %g: tensor<2xf32>, %c: tensor<2xf32>):
    %h1 = graphcore.loop trips 3 carried (%h) scanned (%x) : (tensor<2xf32>, tensor<3x2xf32>) -> tensor<2xf32> {
    ^bb0(%turn: tensor<i64>, %a: tensor<2xf32>, %row: tensor<2xf32>):
      %0 = graphcore.add %a, %row : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      pg.yield %0 : tensor<2xf32>
    }
    pg.return [#pg.bytes<"y">], %h1 : tensor<2xf32>
  }
}
