// The two gradients become the difference of probabilities and one-hot labels.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"labels">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<2xi32>):
    %2 = graphcore.softmax %0 {axis = 1} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %3 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %4 = graphcore.nll_loss_grad %2, %1, %3 {log_probabilities = false, reduction = "sum"} : (tensor<2x3xf32>, tensor<2xi32>, tensor<f32>) -> tensor<2x3xf32>
    %5 = graphcore.softmax_grad %2, %4 {axis = 1} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"dx">], %5 : tensor<2x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"labels">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<2xi32>):
    %2 = graphcore.softmax %0 {axis = 1} : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %3 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %4 = graphcore.cast %1 {to = i64} : (tensor<2xi32>) -> tensor<2xi64>
    %5 = graphcore.reshape %4 {shape = [2, 1]} : (tensor<2xi64>) -> tensor<2x1xi64>
    %6 = graphcore.iota {shape = [3], axis = 0, dtype = i64} : () -> tensor<3xi64>
    %7 = graphcore.compare %5, %6 {predicate = "eq"} : (tensor<2x1xi64>, tensor<3xi64>) -> tensor<2x3xi1>
    %8 = graphcore.cast %7 {to = f32} : (tensor<2x3xi1>) -> tensor<2x3xf32>
    %9 = graphcore.sub %2, %8 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %10 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %11 = graphcore.cast %1 {to = i64} : (tensor<2xi32>) -> tensor<2xi64>
    %12 = pg.constant #pg.data<"0000000000000000" : tensor<i64>>
    %13 = graphcore.compare %11, %12 {predicate = "ge"} : (tensor<2xi64>, tensor<i64>) -> tensor<2xi1>
    %14 = pg.constant #pg.data<"0300000000000000" : tensor<i64>>
    %15 = graphcore.compare %11, %14 {predicate = "lt"} : (tensor<2xi64>, tensor<i64>) -> tensor<2xi1>
    %16 = graphcore.and %13, %15 : (tensor<2xi1>, tensor<2xi1>) -> tensor<2xi1>
    %17 = graphcore.where %16, %3, %10 : (tensor<2xi1>, tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %18 = graphcore.reshape %17 {shape = [2, 1]} : (tensor<2xf32>) -> tensor<2x1xf32>
    %19 = graphcore.mul %9, %18 : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
    pg.return [#pg.bytes<"dx">], %19 : tensor<2x3xf32>
  }
}
