// The gradient of the second operation reads the result of the first one, which is recomputed in the backward pass.
// -p recompute{mode="nodes" named="first"}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %a = graphcore.mul %x, %w : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("zero")
    %b = graphcore.exp %a : (tensor<2xf32>) -> tensor<2xf32> loc("first")
    %c = graphcore.mul %b, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("second")
    %loss = graphcore.reduce_sum %c {axes = [0], keepdims = false} : (tensor<2xf32>) -> tensor<f32>
    %dc = pg.constant #pg.data<"0000803f0000803f" : tensor<2xf32>>
    %db = graphcore.mul %dc, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %d2 = graphcore.add %db, %db : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %da = graphcore.mul %d2, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %dw = graphcore.mul %da, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"loss">, #pg.bytes<"Gradient___w">], %loss, %dw : tensor<f32>, tensor<2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<"0000803f00000040" : tensor<2xf32>>
    %a = graphcore.mul %x, %w : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %b = graphcore.exp %a : (tensor<2xf32>) -> tensor<2xf32>
    %c = graphcore.mul %b, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %loss = graphcore.reduce_sum %c {axes = [0], keepdims = false} : (tensor<2xf32>) -> tensor<f32>
    %dc = pg.constant #pg.data<"0000803f0000803f" : tensor<2xf32>>
    %0 = graphcore.later %a, %dc : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %b_1 = graphcore.exp %0 : (tensor<2xf32>) -> tensor<2xf32>
    %db = graphcore.mul %dc, %b_1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %d2 = graphcore.add %db, %db : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %da = graphcore.mul %d2, %b_1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %dw = graphcore.mul %da, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"loss">, #pg.bytes<"Gradient___w">], %loss, %dw : tensor<f32>, tensor<2xf32>
  }
}
