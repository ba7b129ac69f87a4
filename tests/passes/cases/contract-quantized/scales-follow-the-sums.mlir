// What two DequantizeLinear make floats of is multiplied before, and scaled afterwards.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xui8>):
    %1 = pg.constant #pg.data<"01fe03fc05fa07f808f906fb04fd02ff" : tensor<8x2xi8>>
    %2 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %3 = pg.constant #pg.data<"0000803f00000040" : tensor<2xf32>>
    %4 = pg.constant #pg.data<"0000a040" : tensor<f32>>
    %5 = graphcore.cast %0 {to = f32} : (tensor<2x8xui8>) -> tensor<2x8xf32>
    %6 = graphcore.sub %5, %4 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %7 = graphcore.mul %6, %2 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %8 = graphcore.cast %1 {to = f32} : (tensor<8x2xi8>) -> tensor<8x2xf32>
    %9 = graphcore.mul %8, %3 : (tensor<8x2xf32>, tensor<2xf32>) -> tensor<8x2xf32>
    %10 = graphcore.mat_mul %7, %9 : (tensor<2x8xf32>, tensor<8x2xf32>) -> tensor<2x2xf32>
    %11 = graphcore.div %10, %2 : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
    %12 = graphcore.round %11 : (tensor<2x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">], %12 : tensor<2x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xui8>):
    %1 = pg.constant #pg.data<"01fe03fc05fa07f808f906fb04fd02ff" : tensor<8x2xi8>>
    %2 = graphcore.cast %0 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    %3 = pg.constant #pg.data<"05000000" : tensor<i32>>
    %4 = graphcore.sub %2, %3 : (tensor<2x8xi32>, tensor<i32>) -> tensor<2x8xi32>
    %5 = graphcore.cast %1 {to = i32} : (tensor<8x2xi8>) -> tensor<8x2xi32>
    %6 = graphcore.mat_mul %4, %5 : (tensor<2x8xi32>, tensor<8x2xi32>) -> tensor<2x2xi32>
    %7 = graphcore.cast %6 {to = f32} : (tensor<2x2xi32>) -> tensor<2x2xf32>
    %8 = pg.constant #pg.data<"0000803f00000040" : tensor<1x2xf32>>
    %9 = graphcore.mul %7, %8 : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x2xf32>
    %10 = graphcore.round %9 : (tensor<2x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">], %10 : tensor<2x2xf32>
  }
}
