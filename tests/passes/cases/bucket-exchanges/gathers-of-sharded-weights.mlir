// A sharded weight is gathered while the readers of the weight before it compute.
// -p bucket-exchanges{bucket_bytes=4194304}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.variable #pg.bytes<"v"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %3 = graphcore.exchange %1 {kind = "all_gather", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %4 = graphcore.mul %0, %3 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %5 = graphcore.exp %4 : (tensor<2xf32>) -> tensor<2xf32>
    %6 = graphcore.exchange %2 {kind = "all_gather", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %7 = graphcore.mul %5, %6 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y">], %7 : tensor<2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.variable #pg.bytes<"v"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %3 = graphcore.exchange %1 {kind = "all_gather", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %4 = graphcore.exchange %2 {kind = "all_gather", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %5 = graphcore.mul %0, %3 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %6 = graphcore.exp %5 : (tensor<2xf32>) -> tensor<2xf32>
    %7 = graphcore.mul %6, %4 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"y">], %7 : tensor<2xf32>
  }
}
