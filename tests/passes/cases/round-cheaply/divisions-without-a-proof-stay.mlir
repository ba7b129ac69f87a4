// A division stays if no proof covers all integers in time.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %s = pg.constant #pg.data<"3b8d173d" : tensor<f32>>
    %z = pg.constant #pg.data<"0080" : tensor<ui16>>
    %q = graphcore.quantize %x, %s, %z {low = 0, high = 65535, to = ui16} : (tensor<4xf32>, tensor<f32>, tensor<ui16>) -> tensor<4xui16>
    pg.return [#pg.bytes<"q">], %q : tensor<4xui16>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<4xf32>):
    %s = pg.constant #pg.data<"3b8d173d" : tensor<f32>>
    %z = pg.constant #pg.data<"0080" : tensor<ui16>>
    %q = graphcore.quantize %x, %s, %z {low = 0, high = 65535, to = ui16} : (tensor<4xf32>, tensor<f32>, tensor<ui16>) -> tensor<4xui16>
    pg.return [#pg.bytes<"q">], %q : tensor<4xui16>
  }
}
