// Factors of f32 matmuls are rounded to bf16, a weight and its transpose once; sums stay f32. A matmul of one row stays f32:
// it uses each weight once.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">, #pg.bytes<"row">] {
  ^bb0(%x: tensor<16x8xf32>, %dy: tensor<16x12xf32>, %row: tensor<1x8xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<8x12xf32>>
    %y = graphcore.mat_mul %x, %w : (tensor<16x8xf32>, tensor<8x12xf32>) -> tensor<16x12xf32>
    %t = graphcore.transpose %w {perm = [1, 0]} : (tensor<8x12xf32>) -> tensor<12x8xf32>
    %dx = graphcore.mat_mul %dy, %t : (tensor<16x12xf32>, tensor<12x8xf32>) -> tensor<16x8xf32>
    %z = graphcore.mat_mul %row, %w : (tensor<1x8xf32>, tensor<8x12xf32>) -> tensor<1x12xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"dx">, #pg.bytes<"z">], %y, %dx, %z : tensor<16x12xf32>, tensor<16x8xf32>, tensor<1x12xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">, #pg.bytes<"row">] {
  ^bb0(%x: tensor<16x8xf32>, %dy: tensor<16x12xf32>, %row: tensor<1x8xf32>):
    %0 = graphcore.cast %dy {to = bf16} : (tensor<16x12xf32>) -> tensor<16x12xbf16>
    %1 = graphcore.cast %x {to = bf16} : (tensor<16x8xf32>) -> tensor<16x8xbf16>
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<8x12xf32>>
    %2 = graphcore.cast %w {to = bf16} : (tensor<8x12xf32>) -> tensor<8x12xbf16>
    %3 = graphcore.cast %1 {to = f32} : (tensor<16x8xbf16>) -> tensor<16x8xf32>
    %4 = graphcore.cast %2 {to = f32} : (tensor<8x12xbf16>) -> tensor<8x12xf32>
    %y = graphcore.mat_mul %3, %4 : (tensor<16x8xf32>, tensor<8x12xf32>) -> tensor<16x12xf32>
    %5 = graphcore.transpose %2 {perm = [1, 0]} : (tensor<8x12xbf16>) -> tensor<12x8xbf16>
    %6 = graphcore.cast %0 {to = f32} : (tensor<16x12xbf16>) -> tensor<16x12xf32>
    %7 = graphcore.cast %5 {to = f32} : (tensor<12x8xbf16>) -> tensor<12x8xf32>
    %dx = graphcore.mat_mul %6, %7 : (tensor<16x12xf32>, tensor<12x8xf32>) -> tensor<16x8xf32>
    %z = graphcore.mat_mul %row, %w : (tensor<1x8xf32>, tensor<8x12xf32>) -> tensor<1x12xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"dx">, #pg.bytes<"z">], %y, %dx, %z : tensor<16x12xf32>, tensor<16x8xf32>, tensor<1x12xf32>
  }
}
