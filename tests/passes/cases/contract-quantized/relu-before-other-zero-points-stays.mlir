// A relu before quantization stays if there are integers below the zero point.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xf32>):
    %1 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %2 = pg.constant #pg.data<"81" : tensor<i8>>
    %3 = graphcore.relu %0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %4 = graphcore.quantize %3, %1, %2 {to = i8, low = -128, high = 127} : (tensor<2x8xf32>, tensor<f32>, tensor<i8>) -> tensor<2x8xi8>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x8xi8>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xf32>):
    %1 = pg.constant #pg.data<"00000040" : tensor<f32>>
    %2 = pg.constant #pg.data<"81" : tensor<i8>>
    %3 = graphcore.relu %0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %4 = graphcore.quantize %3, %1, %2 {low = -128, high = 127, to = i8} : (tensor<2x8xf32>, tensor<f32>, tensor<i8>) -> tensor<2x8xi8>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x8xi8>
  }
}
