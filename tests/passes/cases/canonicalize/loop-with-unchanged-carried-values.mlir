// A carried value that no iteration changes is captured; its final value is its initial one.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"h">] {
  ^bb0(%x: tensor<3xf32>, %h: tensor<3xf32>):
    %a, %b = graphcore.loop trips 4 carried (%h, %x) : (tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<3xf32>):
      %s = graphcore.add %p, %q : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %q : tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">], %a, %b : tensor<3xf32>, tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"h">] {
  ^bb0(%x: tensor<3xf32>, %h: tensor<3xf32>):
    %a = graphcore.loop trips 4 carried (%h) captured (%x) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<3xf32>):
      %s = graphcore.add %p, %q : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">], %a, %x : tensor<3xf32>, tensor<3xf32>
  }
}
