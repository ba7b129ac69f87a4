// This stays: the final value of a counter in a loop that may end early, a counter of a loop that runs
// backwards, and a counter with step two.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"go">] {
  ^bb0(%x: tensor<i64>, %go: tensor<i1>):
    %a = graphcore.loop trips 4 while %go carried (%x) : (tensor<i1>, tensor<i64>) -> tensor<i64> {
    ^bb1(%i: tensor<i64>, %q: tensor<i64>):
      %one = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
      %four = pg.constant #pg.data<"0400000000000000" : tensor<i64>>
      %e = graphcore.add %q, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %g = graphcore.compare %e, %four {predicate = "lt"} : (tensor<i64>, tensor<i64>) -> tensor<i1>
      pg.yield %g, %e : tensor<i1>, tensor<i64>
    }
    %b, %c = graphcore.loop trips 4 reverse carried (%x, %x) : (tensor<i64>, tensor<i64>) -> (tensor<i64>, tensor<i64>) {
    ^bb1(%i: tensor<i64>, %q: tensor<i64>, %r: tensor<i64>):
      %one = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
      %two = pg.constant #pg.data<"0200000000000000" : tensor<i64>>
      %e = graphcore.add %q, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %g = graphcore.add %r, %two : (tensor<i64>, tensor<i64>) -> tensor<i64>
      pg.yield %e, %g : tensor<i64>, tensor<i64>
    }
    %d = graphcore.loop trips 4 carried (%x) : (tensor<i64>) -> tensor<i64> {
    ^bb1(%i: tensor<i64>, %q: tensor<i64>):
      %two = pg.constant #pg.data<"0200000000000000" : tensor<i64>>
      %e = graphcore.add %q, %two : (tensor<i64>, tensor<i64>) -> tensor<i64>
      pg.yield %e : tensor<i64>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">, #pg.bytes<"y3">], %a, %b, %c, %d : tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"go">] {
  ^bb0(%x: tensor<i64>, %go: tensor<i1>):
    %a = graphcore.loop trips 4 while %go carried (%x) : (tensor<i1>, tensor<i64>) -> tensor<i64> {
    ^bb0(%i: tensor<i64>, %q: tensor<i64>):
      %one = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
      %four = pg.constant #pg.data<"0400000000000000" : tensor<i64>>
      %e = graphcore.add %q, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %g = graphcore.compare %e, %four {predicate = "lt"} : (tensor<i64>, tensor<i64>) -> tensor<i1>
      pg.yield %g, %e : tensor<i1>, tensor<i64>
    }
    %b, %c = graphcore.loop trips 4 reverse carried (%x, %x) : (tensor<i64>, tensor<i64>) -> (tensor<i64>, tensor<i64>) {
    ^bb0(%i: tensor<i64>, %q: tensor<i64>, %r: tensor<i64>):
      %one = pg.constant #pg.data<"0100000000000000" : tensor<i64>>
      %two = pg.constant #pg.data<"0200000000000000" : tensor<i64>>
      %e = graphcore.add %q, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %g = graphcore.add %r, %two : (tensor<i64>, tensor<i64>) -> tensor<i64>
      pg.yield %e, %g : tensor<i64>, tensor<i64>
    }
    %d = graphcore.loop trips 4 carried (%x) : (tensor<i64>) -> tensor<i64> {
    ^bb0(%i: tensor<i64>, %q: tensor<i64>):
      %two = pg.constant #pg.data<"0200000000000000" : tensor<i64>>
      %e = graphcore.add %q, %two : (tensor<i64>, tensor<i64>) -> tensor<i64>
      pg.yield %e : tensor<i64>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">, #pg.bytes<"y3">], %a, %b, %c, %d : tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>
  }
}
