// The gradient of a value that is used twice is the sum of the gradients of both uses.
// -p autodiff{loss="loss"}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = graphcore.exp %1 : (tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.mul %2, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %4 = graphcore.reduce_sum %3 {axes = [0], keepdims = false} : (tensor<2xf32>) -> tensor<f32>
    pg.return [#pg.bytes<"loss">], %4 : tensor<f32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<2xf32>):
    %1 = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %2 = graphcore.exp %1 : (tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.mul %2, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %4 = graphcore.reduce_sum %3 {axes = [0], keepdims = false} : (tensor<2xf32>) -> tensor<f32>
    %5 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %6 = graphcore.reshape %5 {shape = [1]} : (tensor<f32>) -> tensor<1xf32>
    %7 = graphcore.broadcast %6 {shape = [2]} : (tensor<1xf32>) -> tensor<2xf32>
    %8 = graphcore.mul %7, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %9 = graphcore.mul %7, %2 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %10 = graphcore.mul %8, %2 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %11 = graphcore.add %9, %10 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"loss">, #pg.bytes<"Gradient___w">], %4, %11 : tensor<f32>, tensor<2xf32>
  }
}
