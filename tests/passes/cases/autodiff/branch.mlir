// The gradient of a branch is a branch with the same predicate.
// -p autodiff{loss="loss"}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"p">] {
  ^bb0(%p: tensor<i1>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<4xf32>>
    %y = graphcore.cond %p captured (%w) : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb1(%a: tensor<4xf32>):
      %1 = graphcore.exp %a : (tensor<4xf32>) -> tensor<4xf32>
      pg.yield %1 : tensor<4xf32>
    } else {
    ^bb2(%b: tensor<4xf32>):
      %2 = graphcore.neg %b : (tensor<4xf32>) -> tensor<4xf32>
      pg.yield %2 : tensor<4xf32>
    }
    %loss = graphcore.reduce_sum %y {axes = [0], keepdims = false} : (tensor<4xf32>) -> tensor<f32>
    pg.return [#pg.bytes<"loss">], %loss : tensor<f32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"p">] {
  ^bb0(%p: tensor<i1>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<4xf32>>
    %y = graphcore.cond %p captured (%w) : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>):
      %0 = graphcore.exp %a : (tensor<4xf32>) -> tensor<4xf32>
      pg.yield %0 : tensor<4xf32>
    } else {
    ^bb0(%b: tensor<4xf32>):
      %1 = graphcore.neg %b : (tensor<4xf32>) -> tensor<4xf32>
      pg.yield %1 : tensor<4xf32>
    }
    %loss = graphcore.reduce_sum %y {axes = [0], keepdims = false} : (tensor<4xf32>) -> tensor<f32>
    %Gradient___loss = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %0 = graphcore.reshape %Gradient___loss {shape = [1]} : (tensor<f32>) -> tensor<1xf32>
    %Gradient___y = graphcore.broadcast %0 {shape = [4]} : (tensor<1xf32>) -> tensor<4xf32>
    %Gradient___w = graphcore.cond %p captured (%w, %Gradient___y) : (tensor<i1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %1: tensor<4xf32>):
      %2 = graphcore.exp %a : (tensor<4xf32>) -> tensor<4xf32>
      %3 = graphcore.mul %1, %2 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      pg.yield %3 : tensor<4xf32>
    } else {
    ^bb0(%b: tensor<4xf32>, %4: tensor<4xf32>):
      %5 = graphcore.neg %4 : (tensor<4xf32>) -> tensor<4xf32>
      pg.yield %5 : tensor<4xf32>
    }
    pg.return [#pg.bytes<"loss">, #pg.bytes<"Gradient___w">], %loss, %Gradient___w : tensor<f32>, tensor<4xf32>
  }
}
