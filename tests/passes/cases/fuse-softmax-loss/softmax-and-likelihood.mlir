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
