// This stays: a carried value whose final value is unused, but which feeds a used one an iteration later.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<3xf32>):
    %a, %b = graphcore.loop trips 4 carried (%h, %x) : (tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<3xf32>):
      %s = graphcore.exp %q : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %q, %s : tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<3xf32>):
    %a, %b = graphcore.loop trips 4 carried (%h, %x) : (tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<3xf32>):
      %s = graphcore.exp %q : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %q, %s : tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
