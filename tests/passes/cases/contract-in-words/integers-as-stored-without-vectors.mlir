// Without vectors, a convolution reads bytes as stored: padding is the zero, which is subtracted
// from the sums.
// -p contract-in-words{vector-bytes=4}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<1x2x4x4xui8>):
    %1 = graphcore.cast %0 {to = i32} : (tensor<1x2x4x4xui8>) -> tensor<1x2x4x4xi32>
    %2 = pg.constant #pg.data<"07000000" : tensor<i32>>
    %3 = graphcore.sub %1, %2 : (tensor<1x2x4x4xi32>, tensor<i32>) -> tensor<1x2x4x4xi32>
    %4 = pg.constant #pg.data<"0100000002000000fdffffff04000000fbffffff060000007f00000080ffffff" : tensor<2x1x2x2xi32>>
    %5 = graphcore.conv %3, %4 {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 1, 1], groups = 2} : (tensor<1x2x4x4xi32>, tensor<2x1x2x2xi32>) -> tensor<1x2x4x4xi32>
    pg.return [#pg.bytes<"y">], %5 : tensor<1x2x4x4xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<1x2x4x4xui8>):
    %1 = pg.constant #pg.data<"07000000" : tensor<i32>>
    %2 = pg.constant #pg.data<"0100000002000000fdffffff04000000fbffffff060000007f00000080ffffff" : tensor<2x1x2x2xi32>>
    %3 = pg.constant #pg.data<"0102fd04fb067f80" : tensor<2x1x2x2xi8>>
    %4 = graphcore.cast %3 {to = i32} : (tensor<2x1x2x2xi8>) -> tensor<2x1x2x2xi32>
    %5 = graphcore.pad %0 {low = [0, 0, 0, 0], high = [0, 0, 1, 1], interior = [0, 0, 0, 0], value = 7} : (tensor<1x2x4x4xui8>) -> tensor<1x2x5x5xui8>
    %6 = graphcore.cast %5 {to = i32} : (tensor<1x2x5x5xui8>) -> tensor<1x2x5x5xi32>
    %7 = graphcore.conv %6, %4 {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 2} : (tensor<1x2x5x5xi32>, tensor<2x1x2x2xi32>) -> tensor<1x2x4x4xi32>
    %8 = graphcore.reshape %1 {shape = []} : (tensor<i32>) -> tensor<i32>
    %9 = graphcore.mul %2, %8 : (tensor<2x1x2x2xi32>, tensor<i32>) -> tensor<2x1x2x2xi32>
    %10 = graphcore.reduce_sum %9 {axes = [1, 2, 3], keepdims = false} : (tensor<2x1x2x2xi32>) -> tensor<2xi32>
    %11 = graphcore.reshape %10 {shape = [2, 1, 1]} : (tensor<2xi32>) -> tensor<2x1x1xi32>
    %12 = graphcore.sub %7, %11 : (tensor<1x2x4x4xi32>, tensor<2x1x1xi32>) -> tensor<1x2x4x4xi32>
    pg.return [#pg.bytes<"y">], %12 : tensor<1x2x4x4xi32>
  }
}
