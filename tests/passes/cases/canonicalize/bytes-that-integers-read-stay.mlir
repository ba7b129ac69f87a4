// A byte that one reader takes as an integer stays what is stored, and all others read it.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xf32>):
    %1 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %2 = pg.constant #pg.data<"00007f43" : tensor<f32>>
    %3 = graphcore.round %0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %4 = graphcore.compare %3, %1 {predicate = "gt"} : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xi1>
    %5 = graphcore.where %4, %3, %1 : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %6 = graphcore.min %5, %2 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %7 = graphcore.cast %6 {to = ui8} : (tensor<2x8xf32>) -> tensor<2x8xui8>
    %8 = graphcore.cast %7 {to = f32} : (tensor<2x8xui8>) -> tensor<2x8xf32>
    %9 = graphcore.cast %7 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %8, %9 : tensor<2x8xf32>, tensor<2x8xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x8xf32>):
    %1 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %2 = pg.constant #pg.data<"00007f43" : tensor<f32>>
    %3 = graphcore.round %0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
    %4 = graphcore.compare %3, %1 {predicate = "gt"} : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xi1>
    %5 = graphcore.where %4, %3, %1 : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %6 = graphcore.min %5, %2 : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %7 = graphcore.cast %6 {to = ui8} : (tensor<2x8xf32>) -> tensor<2x8xui8>
    %8 = graphcore.cast %7 {to = f32} : (tensor<2x8xui8>) -> tensor<2x8xf32>
    %9 = graphcore.cast %7 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %8, %9 : tensor<2x8xf32>, tensor<2x8xi32>
  }
}
