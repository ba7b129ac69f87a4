// A slice of a sum of products is the sum of slices of the factors, unless something else reads the sums; kernels and parts of groups stay whole, and an empty slice too.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%0: tensor<2x1x4x5xf32>, %1: tensor<3x5x6xf32>, %2: tensor<2x4x6x6xf32>, %3: tensor<2x6x4x4xf32>):
    %4 = graphcore.mat_mul %0, %1 : (tensor<2x1x4x5xf32>, tensor<3x5x6xf32>) -> tensor<2x3x4x6xf32>
    %5 = graphcore.slice %4 {starts = [1, 1, 0, 5], sizes = [1, 2, 4, 3], steps = [1, 1, 1, -1]} : (tensor<2x3x4x6xf32>) -> tensor<1x2x4x3xf32>
    %6 = graphcore.conv_weight_grad %2,
        %3 {shape = [6, 4, 3, 3], strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 1} : (tensor<2x4x6x6xf32>, tensor<2x6x4x4xf32>) -> tensor<6x4x3x3xf32>
    %7 = graphcore.slice %6 {starts = [1, 0, 0, 1], sizes = [2, 3, 3, 1], steps = [2, 1, 1, 1]} : (tensor<6x4x3x3xf32>) -> tensor<2x3x3x1xf32>
    %8 = graphcore.conv_weight_grad %2,
        %3 {shape = [6, 2, 3, 3], strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 2} : (tensor<2x4x6x6xf32>, tensor<2x6x4x4xf32>) -> tensor<6x2x3x3xf32>
    %9 = graphcore.slice %8 {starts = [3, 1, 0, 0], sizes = [3, 1, 3, 3], steps = [1, 1, 1, 1]} : (tensor<6x2x3x3xf32>) -> tensor<3x1x3x3xf32>
    %10 = graphcore.conv_weight_grad %2,
        %3 {shape = [6, 2, 3, 3], strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 2} : (tensor<2x4x6x6xf32>, tensor<2x6x4x4xf32>) -> tensor<6x2x3x3xf32>
    %11 = graphcore.slice %10 {starts = [2, 0, 0, 0], sizes = [3, 2, 3, 3], steps = [1, 1, 1, 1]} : (tensor<6x2x3x3xf32>) -> tensor<3x2x3x3xf32>
    %12 = graphcore.reduce_sum %3 {axes = [0, 2, 3], keepdims = false} : (tensor<2x6x4x4xf32>) -> tensor<6xf32>
    %13 = graphcore.slice %12 {starts = [2], sizes = [2], steps = [1]} : (tensor<6xf32>) -> tensor<2xf32>
    %14 = graphcore.mat_mul %0, %1 : (tensor<2x1x4x5xf32>, tensor<3x5x6xf32>) -> tensor<2x3x4x6xf32>
    %15 = graphcore.slice %14 {starts = [0, 0, 0, 0], sizes = [1, 3, 4, 6], steps = [1, 1, 1, 1]} : (tensor<2x3x4x6xf32>) -> tensor<1x3x4x6xf32>
    %16 = graphcore.reduce_sum %3 {axes = [0, 2, 3], keepdims = true} : (tensor<2x6x4x4xf32>) -> tensor<1x6x1x1xf32>
    %17 = graphcore.slice %16 {starts = [0, 0, 0, 0], sizes = [0, 6, 1, 1], steps = [1, 1, 1, 1]} : (tensor<1x6x1x1xf32>) -> tensor<0x6x1x1xf32>
    pg.return [#pg.bytes<"product">, #pg.bytes<"channels">, #pg.bytes<"group">, #pg.bytes<"across">, #pg.bytes<"sum">, #pg.bytes<"whole">, #pg.bytes<"read">, #pg.bytes<"empty">],
        %5, %7, %9, %11, %13, %14, %15, %17 : tensor<1x2x4x3xf32>, tensor<2x3x3x1xf32>, tensor<3x1x3x3xf32>,
        tensor<3x2x3x3xf32>, tensor<2xf32>, tensor<2x3x4x6xf32>, tensor<1x3x4x6xf32>, tensor<0x6x1x1xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%0: tensor<2x1x4x5xf32>, %1: tensor<3x5x6xf32>, %2: tensor<2x4x6x6xf32>, %3: tensor<2x6x4x4xf32>):
    %4 = graphcore.slice %0 {starts = [1, 0, 0, 0], sizes = [1, 1, 4, 5], steps = [1, 1, 1, 1]} : (tensor<2x1x4x5xf32>) -> tensor<1x1x4x5xf32>
    %5 = graphcore.slice %1 {starts = [1, 0, 5], sizes = [2, 5, 3], steps = [1, 1, -1]} : (tensor<3x5x6xf32>) -> tensor<2x5x3xf32>
    %6 = graphcore.mat_mul %4, %5 : (tensor<1x1x4x5xf32>, tensor<2x5x3xf32>) -> tensor<1x2x4x3xf32>
    %7 = graphcore.slice %2 {starts = [0, 0, 0, 0], sizes = [2, 3, 6, 6], steps = [1, 1, 1, 1]} : (tensor<2x4x6x6xf32>) -> tensor<2x3x6x6xf32>
    %8 = graphcore.slice %3 {starts = [0, 1, 0, 0], sizes = [2, 2, 4, 4], steps = [1, 2, 1, 1]} : (tensor<2x6x4x4xf32>) -> tensor<2x2x4x4xf32>
    %9 = graphcore.conv_weight_grad %7,
        %8 {shape = [2, 3, 3, 3], strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 1} : (tensor<2x3x6x6xf32>, tensor<2x2x4x4xf32>) -> tensor<2x3x3x3xf32>
    %10 = graphcore.slice %9 {starts = [0, 0, 0, 1], sizes = [2, 3, 3, 1], steps = [1, 1, 1, 1]} : (tensor<2x3x3x3xf32>) -> tensor<2x3x3x1xf32>
    %11 = graphcore.slice %2 {starts = [0, 2, 0, 0], sizes = [2, 2, 6, 6], steps = [1, 1, 1, 1]} : (tensor<2x4x6x6xf32>) -> tensor<2x2x6x6xf32>
    %12 = graphcore.slice %3 {starts = [0, 3, 0, 0], sizes = [2, 3, 4, 4], steps = [1, 1, 1, 1]} : (tensor<2x6x4x4xf32>) -> tensor<2x3x4x4xf32>
    %13 = graphcore.slice %11 {starts = [0, 1, 0, 0], sizes = [2, 1, 6, 6], steps = [1, 1, 1, 1]} : (tensor<2x2x6x6xf32>) -> tensor<2x1x6x6xf32>
    %14 = graphcore.conv_weight_grad %13,
        %12 {shape = [3, 1, 3, 3], strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 1} : (tensor<2x1x6x6xf32>, tensor<2x3x4x4xf32>) -> tensor<3x1x3x3xf32>
    %15 = graphcore.conv_weight_grad %2,
        %3 {shape = [6, 2, 3, 3], strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 2} : (tensor<2x4x6x6xf32>, tensor<2x6x4x4xf32>) -> tensor<6x2x3x3xf32>
    %16 = graphcore.slice %15 {starts = [2, 0, 0, 0], sizes = [3, 2, 3, 3], steps = [1, 1, 1, 1]} : (tensor<6x2x3x3xf32>) -> tensor<3x2x3x3xf32>
    %17 = graphcore.slice %3 {starts = [0, 2, 0, 0], sizes = [2, 2, 4, 4], steps = [1, 1, 1, 1]} : (tensor<2x6x4x4xf32>) -> tensor<2x2x4x4xf32>
    %18 = graphcore.reduce_sum %17 {axes = [0, 2, 3], keepdims = false} : (tensor<2x2x4x4xf32>) -> tensor<2xf32>
    %19 = graphcore.mat_mul %0, %1 : (tensor<2x1x4x5xf32>, tensor<3x5x6xf32>) -> tensor<2x3x4x6xf32>
    %20 = graphcore.slice %19 {starts = [0, 0, 0, 0], sizes = [1, 3, 4, 6], steps = [1, 1, 1, 1]} : (tensor<2x3x4x6xf32>) -> tensor<1x3x4x6xf32>
    %21 = graphcore.reduce_sum %3 {axes = [0, 2, 3], keepdims = true} : (tensor<2x6x4x4xf32>) -> tensor<1x6x1x1xf32>
    %22 = graphcore.slice %21 {starts = [0, 0, 0, 0], sizes = [0, 6, 1, 1], steps = [1, 1, 1, 1]} : (tensor<1x6x1x1xf32>) -> tensor<0x6x1x1xf32>
    pg.return [#pg.bytes<"product">, #pg.bytes<"channels">, #pg.bytes<"group">, #pg.bytes<"across">, #pg.bytes<"sum">, #pg.bytes<"whole">, #pg.bytes<"read">, #pg.bytes<"empty">],
        %6, %10, %14, %16, %18, %19, %20, %22 : tensor<1x2x4x3xf32>, tensor<2x3x3x1xf32>, tensor<3x1x3x3xf32>,
        tensor<3x2x3x3xf32>, tensor<2xf32>, tensor<2x3x4x6xf32>, tensor<1x3x4x6xf32>, tensor<0x6x1x1xf32>
  }
}
