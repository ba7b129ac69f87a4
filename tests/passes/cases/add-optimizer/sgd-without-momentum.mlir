// Without momentum, a weight is updated directly by its gradient.
// -p add-optimizer{optimizer="sgd learning_rate=0.5"}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = graphcore.mul %0, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.reduce_sum %2 {axes = [0], keepdims = false} : (tensor<2xf32>) -> tensor<f32>
    %4 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %5 = graphcore.reshape %4 {shape = [1]} : (tensor<f32>) -> tensor<1xf32>
    %6 = graphcore.broadcast %5 {shape = [2]} : (tensor<1xf32>) -> tensor<2xf32>
    %7 = graphcore.mul %6, %0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"loss">, #pg.bytes<"Gradient___w">], %3, %7 : tensor<f32>, tensor<2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = graphcore.mul %0, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.reduce_sum %2 {axes = [0], keepdims = false} : (tensor<2xf32>) -> tensor<f32>
    %4 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %5 = graphcore.reshape %4 {shape = [1]} : (tensor<f32>) -> tensor<1xf32>
    %6 = graphcore.broadcast %5 {shape = [2]} : (tensor<1xf32>) -> tensor<2xf32>
    %7 = graphcore.mul %6, %0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %8 = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %9 = graphcore.mul %7, %8 : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32>
    %10 = graphcore.sub %1, %9 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.update <"w">, %10 : tensor<2xf32>
    pg.return [#pg.bytes<"loss">], %3 : tensor<f32>
  }
}
