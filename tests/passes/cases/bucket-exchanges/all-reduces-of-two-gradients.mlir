// Two all-reduces are one message, sent before independent operations compute.
// -p bucket-exchanges{bucket_bytes=4194304}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2xf32>, %1: tensor<3xf32>):
    %2 = graphcore.exchange %0 {kind = "all_reduce", combine = "Add", stride = 1, size = 1} : (tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.exchange %1 {kind = "all_reduce", combine = "Add", stride = 1, size = 1} : (tensor<3xf32>) -> tensor<3xf32>
    %4 = graphcore.neg %2 : (tensor<2xf32>) -> tensor<2xf32>
    %5 = graphcore.exp %1 : (tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"c">], %4, %3, %5 : tensor<2xf32>, tensor<3xf32>, tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2xf32>, %1: tensor<3xf32>):
    %2 = graphcore.concat %0, %1 {axis = 0} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
    %3 = graphcore.exchange %2 {kind = "all_reduce", combine = "Add", stride = 1, size = 1} : (tensor<5xf32>) -> tensor<5xf32>
    %4 = graphcore.exp %1 : (tensor<3xf32>) -> tensor<3xf32>
    %5 = graphcore.slice %3 {starts = [0], sizes = [2], steps = [1]} : (tensor<5xf32>) -> tensor<2xf32>
    %6 = graphcore.slice %3 {starts = [2], sizes = [3], steps = [1]} : (tensor<5xf32>) -> tensor<3xf32>
    %7 = graphcore.neg %5 : (tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"c">], %7, %6, %4 : tensor<2xf32>, tensor<3xf32>, tensor<3xf32>
  }
}
