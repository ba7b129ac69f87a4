// The gradient of a branch is a branch under the same predicate.
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
    %0 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %1 = graphcore.reshape %0 {shape = [1]} : (tensor<f32>) -> tensor<1xf32>
    %2 = graphcore.broadcast %1 {shape = [4]} : (tensor<1xf32>) -> tensor<4xf32>
    %3 = graphcore.cond %p captured (%w, %2) : (tensor<i1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%a: tensor<4xf32>, %4: tensor<4xf32>):
      %5 = graphcore.exp %a : (tensor<4xf32>) -> tensor<4xf32>
      %6 = graphcore.mul %4, %5 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      pg.yield %6 : tensor<4xf32>
    } else {
    ^bb0(%b: tensor<4xf32>, %7: tensor<4xf32>):
      %8 = graphcore.neg %7 : (tensor<4xf32>) -> tensor<4xf32>
      pg.yield %8 : tensor<4xf32>
    }
    pg.return [#pg.bytes<"loss">, #pg.bytes<"Gradient___w">], %loss, %3 : tensor<f32>, tensor<4xf32>
  }
}
