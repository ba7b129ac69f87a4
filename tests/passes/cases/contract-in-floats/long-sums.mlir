// A sum that a float might round is split in two, which are added as integers.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x600xui8>, %1: tensor<600x3xi8>):
    %2 = graphcore.cast %0 {to = i32} : (tensor<2x600xui8>) -> tensor<2x600xi32>
    %3 = graphcore.cast %1 {to = i32} : (tensor<600x3xi8>) -> tensor<600x3xi32>
    %4 = graphcore.mat_mul %2, %3 : (tensor<2x600xi32>, tensor<600x3xi32>) -> tensor<2x3xi32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x3xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x600xui8>, %1: tensor<600x3xi8>):
    %2 = graphcore.cast %0 {to = i32} : (tensor<2x600xui8>) -> tensor<2x600xi32>
    %3 = graphcore.cast %1 {to = i32} : (tensor<600x3xi8>) -> tensor<600x3xi32>
    %4 = graphcore.slice %2 {starts = [0, 0], sizes = [2, 304], steps = [1, 1]} : (tensor<2x600xi32>) -> tensor<2x304xi32>
    %5 = graphcore.slice %3 {starts = [0, 0], sizes = [304, 3], steps = [1, 1]} : (tensor<600x3xi32>) -> tensor<304x3xi32>
    %6 = graphcore.cast %4 {to = f32} : (tensor<2x304xi32>) -> tensor<2x304xf32>
    %7 = graphcore.cast %5 {to = f32} : (tensor<304x3xi32>) -> tensor<304x3xf32>
    %8 = graphcore.mat_mul %6, %7 : (tensor<2x304xf32>, tensor<304x3xf32>) -> tensor<2x3xf32>
    %9 = graphcore.cast %8 {to = i32} : (tensor<2x3xf32>) -> tensor<2x3xi32>
    %10 = graphcore.slice %2 {starts = [0, 304], sizes = [2, 296], steps = [1, 1]} : (tensor<2x600xi32>) -> tensor<2x296xi32>
    %11 = graphcore.slice %3 {starts = [304, 0], sizes = [296, 3], steps = [1, 1]} : (tensor<600x3xi32>) -> tensor<296x3xi32>
    %12 = graphcore.cast %10 {to = f32} : (tensor<2x296xi32>) -> tensor<2x296xf32>
    %13 = graphcore.cast %11 {to = f32} : (tensor<296x3xi32>) -> tensor<296x3xf32>
    %14 = graphcore.mat_mul %12, %13 : (tensor<2x296xf32>, tensor<296x3xf32>) -> tensor<2x3xf32>
    %15 = graphcore.cast %14 {to = i32} : (tensor<2x3xf32>) -> tensor<2x3xi32>
    %16 = graphcore.add %9, %15 : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
    pg.return [#pg.bytes<"y">], %16 : tensor<2x3xi32>
  }
}
