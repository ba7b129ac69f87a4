// The reciprocal of a power of two is exact: the quotient becomes one product.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %s = pg.constant #pg.data<"0000803e" : tensor<f32>>
    %z = pg.constant #pg.data<"03" : tensor<i8>>
    %q = graphcore.quantize %x, %s, %z {low = -128, high = 127, to = i8} : (tensor<4xf32>, tensor<f32>, tensor<i8>) -> tensor<4xi8>
    pg.return [#pg.bytes<"q">], %q : tensor<4xi8>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %z = pg.constant #pg.data<"03" : tensor<i8>>
    %0 = pg.constant #pg.data<"00008040" : tensor<f32>>
    %1 = graphcore.mul %x, %0 : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %2 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %q = graphcore.quantize %1, %2, %z {low = -128, high = 127, to = i8} : (tensor<4xf32>, tensor<f32>, tensor<i8>) -> tensor<4xi8>
    pg.return [#pg.bytes<"q">], %q : tensor<4xi8>
  }
}
