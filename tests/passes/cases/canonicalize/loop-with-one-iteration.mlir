// Replaces a loop with one iteration by its body.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"r">, #pg.bytes<"x">] {
  ^bb0(%h: tensor<3xf32>, %r: tensor<1x3xf32>, %x: tensor<3xf32>):
    %a, %b, %c = graphcore.loop trips 1 reverse carried (%h) scanned (%r) captured (%x) : (tensor<3xf32>, tensor<1x3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<1x3xf32>, tensor<1xi64>) {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<3xf32>, %k: tensor<3xf32>):
      %s = graphcore.mul %p, %q : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %t = graphcore.add %s, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %t, %p, %i : tensor<3xf32>, tensor<3xf32>, tensor<i64>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">], %a, %b, %c : tensor<3xf32>, tensor<1x3xf32>, tensor<1xi64>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"r">, #pg.bytes<"x">] {
  ^bb0(%h: tensor<3xf32>, %r: tensor<1x3xf32>, %x: tensor<3xf32>):
    %i = pg.constant #pg.data<"0000000000000000" : tensor<i64>>
    %q = graphcore.reshape %r {shape = [3]} : (tensor<1x3xf32>) -> tensor<3xf32>
    %s = graphcore.mul %h, %q : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %t = graphcore.add %s, %x : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
    %b = graphcore.reshape %h {shape = [1, 3]} : (tensor<3xf32>) -> tensor<1x3xf32>
    %c = graphcore.reshape %i {shape = [1]} : (tensor<i64>) -> tensor<1xi64>
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">], %t, %b, %c : tensor<3xf32>, tensor<1x3xf32>, tensor<1xi64>
  }
}
