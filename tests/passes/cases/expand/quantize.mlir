// Quantized values are clipped before rounding, so that an i32 holds them with their zero point.
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
    %s = pg.constant #pg.data<"3b8d173d" : tensor<f32>>
    %z = pg.constant #pg.data<"80" : tensor<ui8>>
    %0 = graphcore.div %x, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %1 = pg.constant #pg.data<"000000c3" : tensor<f32>>
    %2 = graphcore.compare %0, %1 {predicate = "gt"} : (tensor<4xf32>, tensor<f32>) -> tensor<4xi1>
    %3 = graphcore.where %2, %0, %1 : (tensor<4xi1>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %4 = pg.constant #pg.data<"0000fe42" : tensor<f32>>
    %5 = graphcore.min %3, %4 : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %6 = graphcore.round %5 : (tensor<4xf32>) -> tensor<4xf32>
    %7 = graphcore.cast %6 {to = i32} : (tensor<4xf32>) -> tensor<4xi32>
    %8 = pg.constant #pg.data<"80000000" : tensor<i32>>
    %9 = graphcore.add %7, %8 : (tensor<4xi32>, tensor<i32>) -> tensor<4xi32>
    %q = graphcore.cast %9 {to = ui8} : (tensor<4xi32>) -> tensor<4xui8>
    pg.return [#pg.bytes<"q">], %q : tensor<4xui8>
  }
}
