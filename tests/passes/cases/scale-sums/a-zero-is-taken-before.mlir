// Bytes without sign become such with one where their zero is taken from them; one row of scales is for all.
// -p scale-sums{streamed-l2=0}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x16xf32>):
    %w = pg.constant #pg.data<"00050a0f04090e03080d02070c01060b00050a0f04090e03080d02070c01060b" : tensor<2x16xui8>>
    %m = pg.constant #pg.data<"0f" : tensor<ui8>>
    %z = pg.constant #pg.data<"00000041" : tensor<f32>>
    %s = pg.constant #pg.data<"0000803f00000040" : tensor<2x1xf32>>
    %0 = graphcore.and %w, %m : (tensor<2x16xui8>, tensor<ui8>) -> tensor<2x16xui8>
    %1 = graphcore.cast %0 {to = f32} : (tensor<2x16xui8>) -> tensor<2x16xf32>
    %2 = graphcore.sub %1, %z : (tensor<2x16xf32>, tensor<f32>) -> tensor<2x16xf32>
    %3 = graphcore.mul %2, %s : (tensor<2x16xf32>, tensor<2x1xf32>) -> tensor<2x16xf32>
    %4 = graphcore.transpose %3 {perm = [1, 0]} : (tensor<2x16xf32>) -> tensor<16x2xf32>
    %y = graphcore.mat_mul %x, %4 : (tensor<1x16xf32>, tensor<16x2xf32>) -> tensor<1x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x16xf32>):
    %w = pg.constant #pg.data<"00050a0f04090e03080d02070c01060b00050a0f04090e03080d02070c01060b" : tensor<2x16xui8>>
    %m = pg.constant #pg.data<"0f" : tensor<ui8>>
    %z = pg.constant #pg.data<"00000041" : tensor<f32>>
    %0 = graphcore.and %w, %m : (tensor<2x16xui8>, tensor<ui8>) -> tensor<2x16xui8>
    %1 = graphcore.cast %0 {to = f32} : (tensor<2x16xui8>) -> tensor<2x16xf32>
    %2 = graphcore.sub %1, %z : (tensor<2x16xf32>, tensor<f32>) -> tensor<2x16xf32>
    %3 = graphcore.reshape %x {shape = [1, 1, 16]} : (tensor<1x16xf32>) -> tensor<1x1x16xf32>
    %4 = graphcore.cast %2 {to = i8} : (tensor<2x16xf32>) -> tensor<2x16xi8>
    %5 = graphcore.transpose %4 {perm = [1, 0]} : (tensor<2x16xi8>) -> tensor<16x2xi8>
    %6 = graphcore.reshape %5 {shape = [1, 16, 2]} : (tensor<16x2xi8>) -> tensor<1x16x2xi8>
    %7 = graphcore.cast %6 {to = f32} : (tensor<1x16x2xi8>) -> tensor<1x16x2xf32>
    %8 = pg.constant #pg.data<"0000803f00000040" : tensor<1x1x2xf32>>
    %9 = graphcore.mat_mul %3, %7 : (tensor<1x1x16xf32>, tensor<1x16x2xf32>) -> tensor<1x1x2xf32>
    %10 = graphcore.mul %9, %8 : (tensor<1x1x2xf32>, tensor<1x1x2xf32>) -> tensor<1x1x2xf32>
    %11 = graphcore.reduce_sum %10 {axes = [0], keepdims = false} : (tensor<1x1x2xf32>) -> tensor<1x2xf32>
    %y = graphcore.reshape %11 {shape = [1, 2]} : (tensor<1x2xf32>) -> tensor<1x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x2xf32>
  }
}
