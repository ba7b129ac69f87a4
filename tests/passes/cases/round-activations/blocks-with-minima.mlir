// Each block of a row is rounded to bytes with a scale of its own, and the sums of its bytes multiply the minimum of the block.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x32xf32>):
    %w = pg.constant #pg.data<"07040b0f02000f0807060f0f0c0407040c000205010900080f0c0d0c0e040b0301040f06080d090d0c0b0d070a0008050a0306080903020f0f020b020d040009" : tensor<2x32xui4>>
    %zero = pg.constant #pg.data<"00" : tensor<ui4>>
    %s = pg.constant #pg.data<"0000803f000000400000003f0000803e" : tensor<2x2x1xf32>>
    %l = pg.constant #pg.data<"00000040000080400000803f0000003f" : tensor<2x2x1xf32>>
    %0 = graphcore.broadcast %s {shape = [2, 2, 16]} : (tensor<2x2x1xf32>) -> tensor<2x2x16xf32>
    %1 = graphcore.reshape %0 {shape = [2, 32]} : (tensor<2x2x16xf32>) -> tensor<2x32xf32>
    %2 = graphcore.dequantize %w, %1, %zero {to = f32} : (tensor<2x32xui4>, tensor<2x32xf32>, tensor<ui4>) -> tensor<2x32xf32>
    %3 = graphcore.reshape %2 {shape = [2, 2, 16]} : (tensor<2x32xf32>) -> tensor<2x2x16xf32>
    %4 = graphcore.sub %3, %l : (tensor<2x2x16xf32>, tensor<2x2x1xf32>) -> tensor<2x2x16xf32>
    %5 = graphcore.reshape %4 {shape = [2, 32]} : (tensor<2x2x16xf32>) -> tensor<2x32xf32>
    %6 = graphcore.transpose %5 {perm = [1, 0]} : (tensor<2x32xf32>) -> tensor<32x2xf32>
    %y = graphcore.mat_mul %x, %6 : (tensor<2x32xf32>, tensor<32x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x32xf32>):
    %w = pg.constant #pg.data<"07040b0f02000f0807060f0f0c0407040c000205010900080f0c0d0c0e040b0301040f06080d090d0c0b0d070a0008050a0306080903020f0f020b020d040009" : tensor<2x32xui4>>
    %0 = graphcore.reshape %x {shape = [2, 2, 16]} : (tensor<2x32xf32>) -> tensor<2x2x16xf32>
    %1 = graphcore.transpose %0 {perm = [1, 0, 2]} : (tensor<2x2x16xf32>) -> tensor<2x2x16xf32>
    %2 = graphcore.abs %1 : (tensor<2x2x16xf32>) -> tensor<2x2x16xf32>
    %3 = graphcore.reduce_max %2 {axes = [2], keepdims = true} : (tensor<2x2x16xf32>) -> tensor<2x2x1xf32>
    %4 = pg.constant #pg.data<"0000fe42" : tensor<f32>>
    %5 = graphcore.div %3, %4 : (tensor<2x2x1xf32>, tensor<f32>) -> tensor<2x2x1xf32>
    %6 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %7 = graphcore.compare %5, %6 {predicate = "eq"} : (tensor<2x2x1xf32>, tensor<f32>) -> tensor<2x2x1xi1>
    %8 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %9 = graphcore.where %7, %8, %5 : (tensor<2x2x1xi1>, tensor<f32>, tensor<2x2x1xf32>) -> tensor<2x2x1xf32>
    %10 = graphcore.div %1, %9 : (tensor<2x2x16xf32>, tensor<2x2x1xf32>) -> tensor<2x2x16xf32>
    %11 = graphcore.round %10 : (tensor<2x2x16xf32>) -> tensor<2x2x16xf32>
    %12 = graphcore.cast %11 {to = i8} : (tensor<2x2x16xf32>) -> tensor<2x2x16xi8>
    %13 = graphcore.cast %12 {to = i32} : (tensor<2x2x16xi8>) -> tensor<2x2x16xi32>
    %14 = graphcore.cast %w {to = i32} : (tensor<2x32xui4>) -> tensor<2x32xi32>
    %15 = graphcore.reshape %14 {shape = [2, 2, 16]} : (tensor<2x32xi32>) -> tensor<2x2x16xi32>
    %16 = graphcore.reshape %15 {shape = [2, 32]} : (tensor<2x2x16xi32>) -> tensor<2x32xi32>
    %17 = graphcore.transpose %16 {perm = [1, 0]} : (tensor<2x32xi32>) -> tensor<32x2xi32>
    %18 = graphcore.reshape %17 {shape = [2, 16, 2]} : (tensor<32x2xi32>) -> tensor<2x16x2xi32>
    %19 = graphcore.mat_mul %13, %18 : (tensor<2x2x16xi32>, tensor<2x16x2xi32>) -> tensor<2x2x2xi32>
    %20 = graphcore.cast %19 {to = f32} : (tensor<2x2x2xi32>) -> tensor<2x2x2xf32>
    %21 = graphcore.reduce_sum %13 {axes = [2], keepdims = true} : (tensor<2x2x16xi32>) -> tensor<2x2x1xi32>
    %22 = graphcore.cast %21 {to = f32} : (tensor<2x2x1xi32>) -> tensor<2x2x1xf32>
    %23 = pg.constant #pg.data<"0000803f0000003f000000400000803e" : tensor<2x1x2xf32>>
    %24 = graphcore.mul %20, %23 : (tensor<2x2x2xf32>, tensor<2x1x2xf32>) -> tensor<2x2x2xf32>
    %25 = pg.constant #pg.data<"000000400000803f000080400000003f" : tensor<2x1x2xf32>>
    %26 = graphcore.mul %22, %25 : (tensor<2x2x1xf32>, tensor<2x1x2xf32>) -> tensor<2x2x2xf32>
    %27 = graphcore.sub %24, %26 : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x2xf32>
    %28 = graphcore.mul %27, %5 : (tensor<2x2x2xf32>, tensor<2x2x1xf32>) -> tensor<2x2x2xf32>
    %29 = graphcore.reduce_sum %28 {axes = [0], keepdims = false} : (tensor<2x2x2xf32>) -> tensor<2x2xf32>
    %y = graphcore.reshape %29 {shape = [2, 2]} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x2xf32>
  }
}
