// A known limit becomes the number of trips, or is dropped if it is larger. A smaller one of a loop
// with rows stays.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">] {
  ^bb0(%h: tensor<3xf32>):
    %few = pg.constant #pg.data<"0300000000000000" : tensor<i64>>
    %many = pg.constant #pg.data<"0900000000000000" : tensor<i64>>
    %a = graphcore.loop limit %few carried (%h) : (tensor<i64>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    }
    %b, %c = graphcore.loop trips 5 limit %many carried (%h) : (tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.tanh %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %s : tensor<3xf32>, tensor<3xf32>
    }
    %d, %e = graphcore.loop trips 5 limit %few carried (%h) : (tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.sin %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %s : tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">, #pg.bytes<"y3">, #pg.bytes<"y4">], %a, %b, %c, %d, %e : tensor<3xf32>, tensor<3xf32>, tensor<5x3xf32>, tensor<3xf32>, tensor<5x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">] {
  ^bb0(%h: tensor<3xf32>):
    %few = pg.constant #pg.data<"0300000000000000" : tensor<i64>>
    %a = graphcore.loop trips 3 carried (%h) : (tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    }
    %b, %c = graphcore.loop trips 5 carried (%h) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.tanh %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %s : tensor<3xf32>, tensor<3xf32>
    }
    %d, %e = graphcore.loop trips 5 limit %few carried (%h) : (tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<5x3xf32>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.sin %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %s : tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">, #pg.bytes<"y3">, #pg.bytes<"y4">], %a, %b, %c, %d, %e : tensor<3xf32>, tensor<3xf32>, tensor<5x3xf32>, tensor<3xf32>, tensor<5x3xf32>
  }
}
