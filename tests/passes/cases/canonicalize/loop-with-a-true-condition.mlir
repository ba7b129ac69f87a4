// Drops a condition that holds in every iteration, and that of a loop with at most one iteration.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"g">] {
  ^bb0(%h: tensor<3xf32>, %g: tensor<i1>):
    %go = pg.constant #pg.data<"01" : tensor<i1>>
    %a = graphcore.loop trips 4 while %go carried (%h) : (tensor<i1>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>):
      %c = pg.constant #pg.data<"01" : tensor<i1>>
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %c, %s : tensor<i1>, tensor<3xf32>
    }
    %b = graphcore.loop trips 1 while %go carried (%h) captured (%g) : (tensor<i1>, tensor<3xf32>, tensor<i1>) -> tensor<3xf32> {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<i1>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %q, %s : tensor<i1>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">], %a, %b : tensor<3xf32>, tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"g">] {
  ^bb0(%h: tensor<3xf32>, %g: tensor<i1>):
    %a = graphcore.loop trips 4 carried (%h) : (tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    }
    %s = graphcore.exp %h : (tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">], %a, %s : tensor<3xf32>, tensor<3xf32>
  }
}
