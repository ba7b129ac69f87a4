// This stays: the condition is known before the first iteration only.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"g">] {
  ^bb0(%h: tensor<3xf32>, %g: tensor<i1>):
    %go = pg.constant #pg.data<"01" : tensor<i1>>
    %a = graphcore.loop trips 4 while %go carried (%h) captured (%g) : (tensor<i1>, tensor<3xf32>, tensor<i1>) -> tensor<3xf32> {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<i1>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %q, %s : tensor<i1>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"g">] {
  ^bb0(%h: tensor<3xf32>, %g: tensor<i1>):
    %go = pg.constant #pg.data<"01" : tensor<i1>>
    %a = graphcore.loop trips 4 while %go carried (%h) captured (%g) : (tensor<i1>, tensor<3xf32>, tensor<i1>) -> tensor<3xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<i1>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %q, %s : tensor<i1>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
