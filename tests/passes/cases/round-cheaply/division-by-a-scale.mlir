// A quotient becomes a product with the high and the low part of a reciprocal.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %s = pg.constant #pg.data<"3b8d173d" : tensor<f32>>
    %z = pg.constant #pg.data<"80" : tensor<ui8>>
    %q = graphcore.quantize %x, %s, %z {low = 0, high = 255, to = ui8} : (tensor<4xf32>, tensor<f32>, tensor<ui8>) -> tensor<4xui8>
    pg.return [#pg.bytes<"q">], %q : tensor<4xui8>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %z = pg.constant #pg.data<"80" : tensor<ui8>>
    %0 = pg.constant #pg.data<"7737d841" : tensor<f32>>
    %1 = pg.constant #pg.data<"bf42b935" : tensor<f32>>
    %2 = graphcore.mul %x, %1 : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %3 = graphcore.fma %x, %0, %2 : (tensor<4xf32>, tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
    %4 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %q = graphcore.quantize %3, %4, %z {low = 0, high = 255, to = ui8} : (tensor<4xf32>, tensor<f32>, tensor<ui8>) -> tensor<4xui8>
    pg.return [#pg.bytes<"q">], %q : tensor<4xui8>
  }
}
