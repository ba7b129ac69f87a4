// Without vectors, a depthwise convolution sums integers, although no words hold its channels.
// -p contract-quantized{vector-bytes=4}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<1x2x4x4xui8>):
    %1 = pg.constant #pg.data<"0000803e" : tensor<f32>>
    %2 = pg.constant #pg.data<"00" : tensor<ui8>>
    %3 = graphcore.dequantize %0, %1, %2 {to = f32} : (tensor<1x2x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xf32>
    %4 = pg.constant #pg.data<"0102fd04fb067f80" : tensor<2x1x2x2xi8>>
    %5 = pg.constant #pg.data<"0000003f0000803f" : tensor<2x1x1x1xf32>>
    %6 = pg.constant #pg.data<"00" : tensor<i8>>
    %7 = graphcore.dequantize %4, %5, %6 {to = f32} : (tensor<2x1x2x2xi8>, tensor<2x1x1x1xf32>, tensor<i8>) -> tensor<2x1x2x2xf32>
    %8 = graphcore.conv %3, %7 {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 2} : (tensor<1x2x4x4xf32>, tensor<2x1x2x2xf32>) -> tensor<1x2x3x3xf32>
    pg.return [#pg.bytes<"y">], %8 : tensor<1x2x3x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<1x2x4x4xui8>):
    %1 = pg.constant #pg.data<"0102fd04fb067f80" : tensor<2x1x2x2xi8>>
    %2 = graphcore.cast %0 {to = i32} : (tensor<1x2x4x4xui8>) -> tensor<1x2x4x4xi32>
    %3 = graphcore.cast %1 {to = i32} : (tensor<2x1x2x2xi8>) -> tensor<2x1x2x2xi32>
    %4 = graphcore.conv %2, %3 {strides = [1, 1], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 2} : (tensor<1x2x4x4xi32>, tensor<2x1x2x2xi32>) -> tensor<1x2x3x3xi32>
    %5 = graphcore.cast %4 {to = f32} : (tensor<1x2x3x3xi32>) -> tensor<1x2x3x3xf32>
    %6 = pg.constant #pg.data<"0000003e0000803e" : tensor<2x1x1xf32>>
    %7 = graphcore.mul %5, %6 : (tensor<1x2x3x3xf32>, tensor<2x1x1xf32>) -> tensor<1x2x3x3xf32>
    pg.return [#pg.bytes<"y">], %7 : tensor<1x2x3x3xf32>
  }
}
