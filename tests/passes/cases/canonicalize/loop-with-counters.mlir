// Replaces a counter by its initial value plus the iteration; its final value adds the number of iterations.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<i64>):
    %k = pg.constant #pg.data<"0500000000000000" : tensor<i64>>
    %a, %b, %c, %d = graphcore.loop trips 4 carried (%h, %k, %x) : (tensor<3xf32>, tensor<i64>, tensor<i64>) -> (tensor<3xf32>, tensor<i64>, tensor<i64>, tensor<4xi64>) {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %q: tensor<i64>, %r: tensor<i64>):
      %one = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
      %e = graphcore.add %q, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %g = graphcore.add %one, %r : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %m = graphcore.mul %q, %g : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %e, %g, %m : tensor<3xf32>, tensor<i64>, tensor<i64>, tensor<i64>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">, #pg.bytes<"y3">], %a, %b, %c, %d : tensor<3xf32>, tensor<i64>, tensor<i64>, tensor<4xi64>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<i64>):
    %k = pg.constant #pg.data<"0500000000000000" : tensor<i64>>
    %0 = pg.constant #pg.data<"0400000000000000" : tensor<i64>>
    %b = graphcore.add %k, %0 : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %1 = pg.constant #pg.data<"0400000000000000" : tensor<i64>>
    %c = graphcore.add %x, %1 : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %a, %d = graphcore.loop trips 4 carried (%h) captured (%x) : (tensor<3xf32>, tensor<i64>) -> (tensor<3xf32>, tensor<4xi64>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>, %2: tensor<i64>):
      %3 = pg.constant #pg.data<"0500000000000000" : tensor<i64>>
      %r = graphcore.add %i, %2 : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %q = graphcore.add %i, %3 : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %one = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
      %g = graphcore.add %one, %r : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %m = graphcore.mul %q, %g : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %m : tensor<3xf32>, tensor<i64>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">, #pg.bytes<"y3">], %a, %b, %c, %d : tensor<3xf32>, tensor<i64>, tensor<i64>, tensor<4xi64>
  }
}
