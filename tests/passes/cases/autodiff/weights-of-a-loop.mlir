// The gradient of a weight that every iteration multiplies by is one matmul after the reverse loop.
// -p autodiff{loss="loss"},dce
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"h">] {
  ^bb0(%x: tensor<3x2x4xf32>, %h: tensor<2x4xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<4x4xf32>>
    %last = graphcore.loop trips 3 carried (%h) scanned (%x) captured (%w) : (tensor<2x4xf32>, tensor<3x2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> {
    ^bb1(%turn: tensor<i64>, %before: tensor<2x4xf32>, %row: tensor<2x4xf32>, %r: tensor<4x4xf32>):
      %1 = graphcore.mat_mul %before, %r : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
      %2 = graphcore.add %1, %row : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %3 = graphcore.tanh %2 : (tensor<2x4xf32>) -> tensor<2x4xf32>
      pg.yield %3 : tensor<2x4xf32>
    }
    %loss = graphcore.reduce_sum %last {axes = [0, 1], keepdims = false} : (tensor<2x4xf32>) -> tensor<f32>
    pg.return [#pg.bytes<"loss">], %loss : tensor<f32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"h">] {
  ^bb0(%x: tensor<3x2x4xf32>, %h: tensor<2x4xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<4x4xf32>>
    %last, %0, %1 = graphcore.loop trips 3 carried (%h) scanned (%x) captured (%w) : (tensor<2x4xf32>, tensor<3x2x4xf32>, tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<3x2x4xf32>, tensor<3x2x4xf32>) {
    ^bb0(%turn: tensor<i64>, %before: tensor<2x4xf32>, %row: tensor<2x4xf32>, %r: tensor<4x4xf32>):
      %2 = graphcore.mat_mul %before, %r : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
      %3 = graphcore.add %2, %row : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %4 = graphcore.tanh %3 : (tensor<2x4xf32>) -> tensor<2x4xf32>
      pg.yield %4, %before, %2 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
    }
    %loss = graphcore.reduce_sum %last {axes = [0, 1], keepdims = false} : (tensor<2x4xf32>) -> tensor<f32>
    %Gradient___loss = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %2 = graphcore.reshape %Gradient___loss {shape = [1, 1]} : (tensor<f32>) -> tensor<1x1xf32>
    %Gradient___last = graphcore.broadcast %2 {shape = [2, 4]} : (tensor<1x1xf32>) -> tensor<2x4xf32>
    %3, %4 = graphcore.loop trips 3 reverse carried (%Gradient___last) scanned (%x, %1)
        captured (%w) : (tensor<2x4xf32>, tensor<3x2x4xf32>, tensor<3x2x4xf32>, tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<3x2x4xf32>) {
    ^bb0(%5: tensor<i64>, %6: tensor<2x4xf32>, %7: tensor<2x4xf32>, %8: tensor<2x4xf32>, %9: tensor<4x4xf32>):
      %10 = graphcore.add %8, %7 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %11 = graphcore.tanh %10 : (tensor<2x4xf32>) -> tensor<2x4xf32>
      %12 = graphcore.mul %11, %11 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %13 = pg.constant #pg.data<"0000803f" : tensor<f32>>
      %14 = graphcore.sub %13, %12 : (tensor<f32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %15 = graphcore.mul %6, %14 : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
      %16 = graphcore.transpose %9 {perm = [1, 0]} : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %17 = graphcore.mat_mul %15, %16 : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
      pg.yield %17, %15 : tensor<2x4xf32>, tensor<2x4xf32>
    }
    %5 = graphcore.reshape %0 {shape = [6, 4]} : (tensor<3x2x4xf32>) -> tensor<6x4xf32>
    %6 = graphcore.transpose %5 {perm = [1, 0]} : (tensor<6x4xf32>) -> tensor<4x6xf32>
    %7 = graphcore.reshape %4 {shape = [6, 4]} : (tensor<3x2x4xf32>) -> tensor<6x4xf32>
    %Gradient___w = graphcore.mat_mul %6, %7 : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
    pg.return [#pg.bytes<"loss">, #pg.bytes<"Gradient___w">], %loss, %Gradient___w : tensor<f32>, tensor<4x4xf32>
  }
}
