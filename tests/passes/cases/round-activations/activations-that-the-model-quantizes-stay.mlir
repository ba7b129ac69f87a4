// Dequantized activations stay: they are rounded already. Weights in blocks of eight rows stay, too.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"q">] {
  ^bb0(%x: tensor<2x16xf32>, %q: tensor<2x16xi8>):
    %w = pg.constant #pg.data<"dad43c1617c1a98e78129e0327371065d095864f15ada0b846c1c0ebc5348adc" : tensor<16x2xi8>>
    %zero = pg.constant #pg.data<"00" : tensor<i8>>
    %half = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %s = pg.constant #pg.data<"0000803f00000040" : tensor<2x1x1xf32>>
    %0 = graphcore.broadcast %s {shape = [2, 8, 2]} : (tensor<2x1x1xf32>) -> tensor<2x8x2xf32>
    %1 = graphcore.reshape %0 {shape = [16, 2]} : (tensor<2x8x2xf32>) -> tensor<16x2xf32>
    %2 = graphcore.dequantize %w, %1, %zero {to = f32} : (tensor<16x2xi8>, tensor<16x2xf32>, tensor<i8>) -> tensor<16x2xf32>
    %3 = graphcore.dequantize %w, %half, %zero {to = f32} : (tensor<16x2xi8>, tensor<f32>, tensor<i8>) -> tensor<16x2xf32>
    %4 = graphcore.dequantize %q, %half, %zero {to = f32} : (tensor<2x16xi8>, tensor<f32>, tensor<i8>) -> tensor<2x16xf32>
    %y = graphcore.mat_mul %x, %2 : (tensor<2x16xf32>, tensor<16x2xf32>) -> tensor<2x2xf32>
    %z = graphcore.mat_mul %4, %3 : (tensor<2x16xf32>, tensor<16x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %y, %z : tensor<2x2xf32>, tensor<2x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"q">] {
  ^bb0(%x: tensor<2x16xf32>, %q: tensor<2x16xi8>):
    %w = pg.constant #pg.data<"dad43c1617c1a98e78129e0327371065d095864f15ada0b846c1c0ebc5348adc" : tensor<16x2xi8>>
    %zero = pg.constant #pg.data<"00" : tensor<i8>>
    %half = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %s = pg.constant #pg.data<"0000803f00000040" : tensor<2x1x1xf32>>
    %0 = graphcore.broadcast %s {shape = [2, 8, 2]} : (tensor<2x1x1xf32>) -> tensor<2x8x2xf32>
    %1 = graphcore.reshape %0 {shape = [16, 2]} : (tensor<2x8x2xf32>) -> tensor<16x2xf32>
    %2 = graphcore.dequantize %w, %1, %zero {to = f32} : (tensor<16x2xi8>, tensor<16x2xf32>, tensor<i8>) -> tensor<16x2xf32>
    %3 = graphcore.dequantize %w, %half, %zero {to = f32} : (tensor<16x2xi8>, tensor<f32>, tensor<i8>) -> tensor<16x2xf32>
    %4 = graphcore.dequantize %q, %half, %zero {to = f32} : (tensor<2x16xi8>, tensor<f32>, tensor<i8>) -> tensor<2x16xf32>
    %y = graphcore.mat_mul %x, %2 : (tensor<2x16xf32>, tensor<16x2xf32>) -> tensor<2x2xf32>
    %z = graphcore.mat_mul %4, %3 : (tensor<2x16xf32>, tensor<16x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %y, %z : tensor<2x2xf32>, tensor<2x2xf32>
  }
}
