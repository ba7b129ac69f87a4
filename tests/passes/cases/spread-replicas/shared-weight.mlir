// A weight shared by replicas exists once, and their gradients of it are added.
// -p spread-replicas{replicas="2 shared=y"}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%x: tensor<2xf32>, %y: tensor<2xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %0 = graphcore.mul %w, %y : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %1 = graphcore.mul %x, %0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"z">, #pg.bytes<"Gradient___w">], %0, %1 : tensor<2xf32>, tensor<2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x@replica0">, #pg.bytes<"x@replica1">, #pg.bytes<"y">] {
  ^bb0(%x: tensor<2xf32>, %x_1: tensor<2xf32>, %y: tensor<2xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %0 = graphcore.mul %w, %y : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %1 = graphcore.mul %x, %0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %2 = graphcore.mul %x_1, %0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.add %1, %2 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"z@replica0">, #pg.bytes<"z@replica1">, #pg.bytes<"Gradient___w@replica0">, #pg.bytes<"Gradient___w@replica1">, #pg.bytes<"Gradient___w">],
        %0, %0, %1, %2, %3 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
  }
}
