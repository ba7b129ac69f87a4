// Two gathers of a sharded weight are not merged, so that the whole weight is not kept in between.
// -p cse
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.variable #pg.bytes<"v"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = graphcore.exchange %1 {kind = "all_gather", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.mul %0, %2 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %4 = graphcore.exp %3 : (tensor<2xf32>) -> tensor<2xf32>
    %5 = graphcore.exp %3 : (tensor<2xf32>) -> tensor<2xf32>
    %6 = graphcore.exchange %1 {kind = "all_gather", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %7 = graphcore.mul %4, %6 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %8 = graphcore.add %7, %5 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y">], %8 : tensor<2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.variable #pg.bytes<"v"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = graphcore.exchange %1 {kind = "all_gather", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.mul %0, %2 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %4 = graphcore.exp %3 : (tensor<2xf32>) -> tensor<2xf32>
    %5 = graphcore.exchange %1 {kind = "all_gather", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %6 = graphcore.mul %4, %5 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %7 = graphcore.add %6, %4 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y">], %7 : tensor<2xf32>
  }
}
