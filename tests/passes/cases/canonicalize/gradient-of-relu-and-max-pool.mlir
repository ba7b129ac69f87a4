// The gradient of relu compares the result of the pool, not its input, which need not be kept.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<1x2x5xf32>, %dy: tensor<1x2x3xf32>):
    %zero = pg.constant #pg.data<"00000000" : tensor<f32>>
    %r = graphcore.relu %x : (tensor<1x2x5xf32>) -> tensor<1x2x5xf32>
    %y = graphcore.max_pool %r {kernel = [3], strides = [2], dilations = [1], pads = [1, 1], sizes = [3]} : (tensor<1x2x5xf32>) -> tensor<1x2x3xf32>
    %dr = graphcore.max_pool_grad %r, %dy {kernel = [3], strides = [2], dilations = [1], pads = [1, 1], sizes = [3]} : (tensor<1x2x5xf32>, tensor<1x2x3xf32>) -> tensor<1x2x5xf32>
    %mask = graphcore.compare %r, %zero {predicate = "gt"} : (tensor<1x2x5xf32>, tensor<f32>) -> tensor<1x2x5xi1>
    %dx = graphcore.where %mask, %dr, %zero : (tensor<1x2x5xi1>, tensor<1x2x5xf32>, tensor<f32>) -> tensor<1x2x5xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"dx">], %y, %dx : tensor<1x2x3xf32>, tensor<1x2x5xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<1x2x5xf32>, %dy: tensor<1x2x3xf32>):
    %zero = pg.constant #pg.data<"00000000" : tensor<f32>>
    %r = graphcore.relu %x : (tensor<1x2x5xf32>) -> tensor<1x2x5xf32>
    %y = graphcore.max_pool %r {kernel = [3], strides = [2], dilations = [1], pads = [1, 1], sizes = [3]} : (tensor<1x2x5xf32>) -> tensor<1x2x3xf32>
    %0 = graphcore.compare %y, %zero {predicate = "gt"} : (tensor<1x2x3xf32>, tensor<f32>) -> tensor<1x2x3xi1>
    %1 = graphcore.where %0, %dy, %zero : (tensor<1x2x3xi1>, tensor<1x2x3xf32>, tensor<f32>) -> tensor<1x2x3xf32>
    %dx = graphcore.max_pool_grad %r, %1 {kernel = [3], strides = [2], dilations = [1], pads = [1, 1], sizes = [3]} : (tensor<1x2x5xf32>, tensor<1x2x3xf32>) -> tensor<1x2x5xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"dx">], %y, %dx : tensor<1x2x3xf32>, tensor<1x2x5xf32>
  }
}
