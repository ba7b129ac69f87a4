// Rows that merge steps and a batch of run-time size are computed separately, so that the batch can end anywhere.
builtin.module attributes {sizes = [#pg.size<"N" 1 to 3 inputs ("x" axis 1 times 1) outputs ()>]} {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"b">] {
  ^bb0(%x: tensor<2x3x4xf32>, %w: tensor<4x5xf32>, %b: tensor<5xf32>):
    %rows = graphcore.reshape %x {shape = [6, 4]} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
    %product = graphcore.mat_mul %rows, %w : (tensor<6x4xf32>, tensor<4x5xf32>) -> tensor<6x5xf32>
    %sum = graphcore.add %b, %product : (tensor<5xf32>, tensor<6x5xf32>) -> tensor<6x5xf32>
    %most = graphcore.reduce_max %sum {axes = [1], keepdims = true} : (tensor<6x5xf32>) -> tensor<6x1xf32>
    %rest = graphcore.sub %sum, %most : (tensor<6x5xf32>, tensor<6x1xf32>) -> tensor<6x5xf32>
    %y = graphcore.reshape %rest {shape = [2, 3, 5]} : (tensor<6x5xf32>) -> tensor<2x3x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x3x5xf32>
  }
}
// -----
builtin.module attributes {sizes = [#pg.size<"N" 1 to 3 inputs ("x" axis 1 times 1) outputs ()>]} {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"b">] {
  ^bb0(%x: tensor<2x3x4xf32>, %w: tensor<4x5xf32>, %b: tensor<5xf32>):
    %0 = graphcore.mat_mul %x, %w : (tensor<2x3x4xf32>, tensor<4x5xf32>) -> tensor<2x3x5xf32>
    %1 = graphcore.add %b, %0 : (tensor<5xf32>, tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
    %2 = graphcore.reduce_max %1 {axes = [2], keepdims = false} : (tensor<2x3x5xf32>) -> tensor<2x3xf32>
    %3 = graphcore.reshape %2 {shape = [2, 3, 1]} : (tensor<2x3xf32>) -> tensor<2x3x1xf32>
    %y = graphcore.sub %1, %3 : (tensor<2x3x5xf32>, tensor<2x3x1xf32>) -> tensor<2x3x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x3x5xf32>
  }
}
