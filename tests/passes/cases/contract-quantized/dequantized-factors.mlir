// Dequantized factors are multiplied as integers, and the sums are scaled by the scale of the result.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xui8>):
    %1 = pg.constant #pg.data<"01fe03fc05fa07f808f906fb04fd02ff" : tensor<2x8xi8>>
    %2 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %3 = pg.constant #pg.data<"0000803f00000040" : tensor<2x1xf32>>
    %4 = pg.constant #pg.data<"05" : tensor<ui8>>
    %5 = pg.constant #pg.data<"00" : tensor<i8>>
    %6 = graphcore.dequantize %0, %2, %4 {to = f32} : (tensor<2x8xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x8xf32>
    %7 = graphcore.dequantize %1, %3, %5 {to = f32} : (tensor<2x8xi8>, tensor<2x1xf32>, tensor<i8>) -> tensor<2x8xf32>
    %8 = graphcore.transpose %7 {perm = [1, 0]} : (tensor<2x8xf32>) -> tensor<8x2xf32>
    %9 = graphcore.mat_mul %6, %8 : (tensor<2x8xf32>, tensor<8x2xf32>) -> tensor<2x2xf32>
    %10 = graphcore.quantize %9, %2, %4 {to = ui8, low = 0, high = 255} : (tensor<2x2xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x2xui8>
    pg.return [#pg.bytes<"y">], %10 : tensor<2x2xui8>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xui8>):
    %1 = pg.constant #pg.data<"01fe03fc05fa07f808f906fb04fd02ff" : tensor<2x8xi8>>
    %2 = pg.constant #pg.data<"05" : tensor<ui8>>
    %3 = graphcore.cast %0 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    %4 = pg.constant #pg.data<"05000000" : tensor<i32>>
    %5 = graphcore.sub %3, %4 : (tensor<2x8xi32>, tensor<i32>) -> tensor<2x8xi32>
    %6 = graphcore.cast %1 {to = i32} : (tensor<2x8xi8>) -> tensor<2x8xi32>
    %7 = graphcore.transpose %6 {perm = [1, 0]} : (tensor<2x8xi32>) -> tensor<8x2xi32>
    %8 = graphcore.mat_mul %5, %7 : (tensor<2x8xi32>, tensor<8x2xi32>) -> tensor<2x2xi32>
    %9 = graphcore.cast %8 {to = f32} : (tensor<2x2xi32>) -> tensor<2x2xf32>
    %10 = pg.constant #pg.data<"0000803f00000040" : tensor<1x2xf32>>
    %11 = graphcore.mul %9, %10 : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
    %12 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %13 = graphcore.quantize %11, %12, %2 {low = 0, high = 255, to = ui8} : (tensor<2x2xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x2xui8>
    pg.return [#pg.bytes<"y">], %13 : tensor<2x2xui8>
  }
}
