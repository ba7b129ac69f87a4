// A row has one scale if a column of weights has one; results keep their type. The zero is subtracted from the sums.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<3x2x16xf16>):
    %w = pg.constant #pg.data<"799adf849bad05d4a10ac0441eaaeeb4b48efa0b1f0abd80e998a35aba5ea0bd8799c1350d439e71897aa75fde3134a4" : tensor<16x3xui8>>
    %zero = pg.constant #pg.data<"807f81" : tensor<3xui8>>
    %s = pg.constant #pg.data<"003c00400038" : tensor<3xf16>>
    %0 = graphcore.dequantize %w, %s, %zero {to = f16} : (tensor<16x3xui8>, tensor<3xf16>, tensor<3xui8>) -> tensor<16x3xf16>
    %y = graphcore.mat_mul %x, %0 : (tensor<3x2x16xf16>, tensor<16x3xf16>) -> tensor<3x2x3xf16>
    pg.return [#pg.bytes<"y">], %y : tensor<3x2x3xf16>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<3x2x16xf16>):
    %w = pg.constant #pg.data<"799adf849bad05d4a10ac0441eaaeeb4b48efa0b1f0abd80e998a35aba5ea0bd8799c1350d439e71897aa75fde3134a4" : tensor<16x3xui8>>
    %0 = graphcore.cast %x {to = f32} : (tensor<3x2x16xf16>) -> tensor<3x2x16xf32>
    %1 = graphcore.reshape %0 {shape = [6, 1, 16]} : (tensor<3x2x16xf32>) -> tensor<6x1x16xf32>
    %2 = graphcore.transpose %1 {perm = [1, 0, 2]} : (tensor<6x1x16xf32>) -> tensor<1x6x16xf32>
    %3 = graphcore.abs %2 : (tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %4 = graphcore.reduce_max %3 {axes = [2], keepdims = true} : (tensor<1x6x16xf32>) -> tensor<1x6x1xf32>
    %5 = pg.constant #pg.data<"0000fe42" : tensor<f32>>
    %6 = graphcore.div %4, %5 : (tensor<1x6x1xf32>, tensor<f32>) -> tensor<1x6x1xf32>
    %7 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %8 = graphcore.compare %6, %7 {predicate = "eq"} : (tensor<1x6x1xf32>, tensor<f32>) -> tensor<1x6x1xi1>
    %9 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %10 = graphcore.where %8, %9, %6 : (tensor<1x6x1xi1>, tensor<f32>, tensor<1x6x1xf32>) -> tensor<1x6x1xf32>
    %11 = graphcore.div %2, %10 : (tensor<1x6x16xf32>, tensor<1x6x1xf32>) -> tensor<1x6x16xf32>
    %12 = graphcore.round %11 : (tensor<1x6x16xf32>) -> tensor<1x6x16xf32>
    %13 = graphcore.cast %12 {to = i8} : (tensor<1x6x16xf32>) -> tensor<1x6x16xi8>
    %14 = graphcore.cast %13 {to = i32} : (tensor<1x6x16xi8>) -> tensor<1x6x16xi32>
    %15 = graphcore.cast %w {to = i32} : (tensor<16x3xui8>) -> tensor<16x3xi32>
    %16 = graphcore.reshape %15 {shape = [1, 16, 3]} : (tensor<16x3xi32>) -> tensor<1x16x3xi32>
    %17 = pg.constant #pg.data<"05000000" : tensor<i32>>
    %18 = graphcore.sub %16, %17 : (tensor<1x16x3xi32>, tensor<i32>) -> tensor<1x16x3xi32>
    %19 = graphcore.mat_mul %14, %18 : (tensor<1x6x16xi32>, tensor<1x16x3xi32>) -> tensor<1x6x3xi32>
    %20 = graphcore.cast %19 {to = f32} : (tensor<1x6x3xi32>) -> tensor<1x6x3xf32>
    %21 = graphcore.reduce_sum %14 {axes = [2], keepdims = true} : (tensor<1x6x16xi32>) -> tensor<1x6x1xi32>
    %22 = graphcore.cast %21 {to = f32} : (tensor<1x6x1xi32>) -> tensor<1x6x1xf32>
    %23 = pg.constant #pg.data<"0000f6420000f4420000f842" : tensor<1x1x3xf32>>
    %24 = graphcore.mul %22, %23 : (tensor<1x6x1xf32>, tensor<1x1x3xf32>) -> tensor<1x6x3xf32>
    %25 = graphcore.sub %20, %24 : (tensor<1x6x3xf32>, tensor<1x6x3xf32>) -> tensor<1x6x3xf32>
    %26 = graphcore.mul %25, %6 : (tensor<1x6x3xf32>, tensor<1x6x1xf32>) -> tensor<1x6x3xf32>
    %27 = pg.constant #pg.data<"0000803f000000400000003f" : tensor<1x1x3xf32>>
    %28 = graphcore.mul %26, %27 : (tensor<1x6x3xf32>, tensor<1x1x3xf32>) -> tensor<1x6x3xf32>
    %29 = graphcore.reduce_sum %28 {axes = [0], keepdims = false} : (tensor<1x6x3xf32>) -> tensor<6x3xf32>
    %30 = graphcore.reshape %29 {shape = [3, 2, 3]} : (tensor<6x3xf32>) -> tensor<3x2x3xf32>
    %y = graphcore.cast %30 {to = f16} : (tensor<3x2x3xf32>) -> tensor<3x2x3xf16>
    pg.return [#pg.bytes<"y">], %y : tensor<3x2x3xf16>
  }
}
