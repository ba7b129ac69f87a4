// An all-reduce is the sum over replicas; each group has its own weights.
// -p spread-replicas{replicas="2 groups=w:1:1"}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %0 = graphcore.mul %w, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %1 = graphcore.all_reduce %0 {stride = 1, size = 2, combine = "Add"} : (tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y">], %1 : tensor<2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x@replica0">, #pg.bytes<"x@replica1">] {
  ^bb0(%x: tensor<2xf32>, %x_1: tensor<2xf32>):
    %w = pg.variable #pg.bytes<"w@group0"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %w_1 = pg.variable #pg.bytes<"w@group1"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %0 = graphcore.mul %w, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %1 = graphcore.mul %w_1, %x_1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %2 = graphcore.add %0, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y@replica0">, #pg.bytes<"y@replica1">], %2, %2 : tensor<2xf32>, tensor<2xf32>
  }
}
