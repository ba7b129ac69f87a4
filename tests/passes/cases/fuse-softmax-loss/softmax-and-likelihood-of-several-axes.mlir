// A softmax of rows and a loss with several sample axes have one gradient, too.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"labels">] {
  ^bb0(%0: tensor<4x3xf32>, %1: tensor<2x2xi32>):
    %2 = graphcore.softmax %0 {axis = 1} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %3 = graphcore.reshape %2 {shape = [2, 2, 3]} : (tensor<4x3xf32>) -> tensor<2x2x3xf32>
    %4 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %5 = graphcore.nll_loss_grad %3, %1, %4 {log_probabilities = false, reduction = "sum"} : (tensor<2x2x3xf32>, tensor<2x2xi32>, tensor<f32>) -> tensor<2x2x3xf32>
    %6 = graphcore.reshape %5 {shape = [4, 3]} : (tensor<2x2x3xf32>) -> tensor<4x3xf32>
    %7 = graphcore.softmax_grad %2, %6 {axis = 1} : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>
    pg.return [#pg.bytes<"dx">], %7 : tensor<4x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"labels">] {
  ^bb0(%0: tensor<4x3xf32>, %1: tensor<2x2xi32>):
    %2 = graphcore.softmax %0 {axis = 1} : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %3 = graphcore.reshape %2 {shape = [2, 2, 3]} : (tensor<4x3xf32>) -> tensor<2x2x3xf32>
    %4 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %5 = graphcore.cast %1 {to = i64} : (tensor<2x2xi32>) -> tensor<2x2xi64>
    %6 = graphcore.reshape %5 {shape = [2, 2, 1]} : (tensor<2x2xi64>) -> tensor<2x2x1xi64>
    %7 = graphcore.iota {shape = [3], axis = 0, dtype = i64} : () -> tensor<3xi64>
    %8 = graphcore.compare %6, %7 {predicate = "eq"} : (tensor<2x2x1xi64>, tensor<3xi64>) -> tensor<2x2x3xi1>
    %9 = graphcore.cast %8 {to = f32} : (tensor<2x2x3xi1>) -> tensor<2x2x3xf32>
    %10 = graphcore.sub %3, %9 : (tensor<2x2x3xf32>, tensor<2x2x3xf32>) -> tensor<2x2x3xf32>
    %11 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %12 = graphcore.cast %1 {to = i64} : (tensor<2x2xi32>) -> tensor<2x2xi64>
    %13 = pg.constant #pg.data<"0000000000000000" : tensor<i64>>
    %14 = graphcore.compare %12, %13 {predicate = "ge"} : (tensor<2x2xi64>, tensor<i64>) -> tensor<2x2xi1>
    %15 = pg.constant #pg.data<"0300000000000000" : tensor<i64>>
    %16 = graphcore.compare %12, %15 {predicate = "lt"} : (tensor<2x2xi64>, tensor<i64>) -> tensor<2x2xi1>
    %17 = graphcore.and %14, %16 : (tensor<2x2xi1>, tensor<2x2xi1>) -> tensor<2x2xi1>
    %18 = graphcore.where %17, %4, %11 : (tensor<2x2xi1>, tensor<f32>, tensor<f32>) -> tensor<2x2xf32>
    %19 = graphcore.reshape %18 {shape = [2, 2, 1]} : (tensor<2x2xf32>) -> tensor<2x2x1xf32>
    %20 = graphcore.mul %10, %19 : (tensor<2x2x3xf32>, tensor<2x2x1xf32>) -> tensor<2x2x3xf32>
    %21 = graphcore.reshape %20 {shape = [4, 3]} : (tensor<2x2x3xf32>) -> tensor<4x3xf32>
    pg.return [#pg.bytes<"dx">], %21 : tensor<4x3xf32>
  }
}
