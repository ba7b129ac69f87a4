// A quotient of scaled integers stays as it is where it is not rounded: floor wants it exact.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xi32>):
    %1 = pg.constant #pg.data<"0000e040" : tensor<f32>>
    %2 = pg.constant #pg.data<"00002041" : tensor<f32>>
    %3 = graphcore.cast %0 {to = f32} : (tensor<2x8xi32>) -> tensor<2x8xf32>
    %4 = graphcore.mul %3, %1 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %5 = graphcore.div %4, %2 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %6 = graphcore.floor %5 : (tensor<2x8xf32>) -> tensor<2x8xf32>
    pg.return [#pg.bytes<"y">], %6 : tensor<2x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xi32>):
    %1 = pg.constant #pg.data<"0000e040" : tensor<f32>>
    %2 = pg.constant #pg.data<"00002041" : tensor<f32>>
    %3 = graphcore.cast %0 {to = f32} : (tensor<2x8xi32>) -> tensor<2x8xf32>
    %4 = graphcore.mul %3, %1 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %5 = graphcore.div %4, %2 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %6 = graphcore.floor %5 : (tensor<2x8xf32>) -> tensor<2x8xf32>
    pg.return [#pg.bytes<"y">], %6 : tensor<2x8xf32>
  }
}
