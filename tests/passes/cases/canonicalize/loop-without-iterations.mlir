// Replaces a loop that never runs (no trips, a false condition or a limit of 0) by its initial values
// and rows of zeros.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">] {
  ^bb0(%h: tensor<3xf32>):
    %no = pg.constant #pg.data<"00" : tensor<i1>>
    %none = pg.constant #pg.data<"ffffffffffffffff" : tensor<i64>>
    %a, %b = graphcore.loop trips 0 carried (%h) : (tensor<3xf32>) -> (tensor<3xf32>, tensor<0x3xf32>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %s : tensor<3xf32>, tensor<3xf32>
    }
    %c, %d = graphcore.loop trips 2 while %no carried (%h) : (tensor<i1>, tensor<3xf32>) -> (tensor<3xf32>, tensor<2x3xf32>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %t = pg.constant #pg.data<"01" : tensor<i1>>
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %t, %s, %s : tensor<i1>, tensor<3xf32>, tensor<3xf32>
    }
    %e, %g = graphcore.loop trips 2 limit %none carried (%h) : (tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<2x3xf32>) {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %s : tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">, #pg.bytes<"y3">, #pg.bytes<"y4">, #pg.bytes<"y5">],
        %a, %b, %c, %d, %e, %g : tensor<3xf32>, tensor<0x3xf32>, tensor<3xf32>, tensor<2x3xf32>, tensor<3xf32>,
        tensor<2x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">] {
  ^bb0(%h: tensor<3xf32>):
    %0 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %b = graphcore.broadcast %0 {shape = [0, 3]} : (tensor<f32>) -> tensor<0x3xf32>
    %1 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %d = graphcore.broadcast %1 {shape = [2, 3]} : (tensor<f32>) -> tensor<2x3xf32>
    %2 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %g = graphcore.broadcast %2 {shape = [2, 3]} : (tensor<f32>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">, #pg.bytes<"y3">, #pg.bytes<"y4">, #pg.bytes<"y5">],
        %h, %b, %h, %d, %h, %g : tensor<3xf32>, tensor<0x3xf32>, tensor<3xf32>, tensor<2x3xf32>, tensor<3xf32>,
        tensor<2x3xf32>
  }
}
