// Two bytes, with or without sign, are packed into a word as 16-bit numbers.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x9xui8>, %1: tensor<9x4xi8>):
    %2 = graphcore.cast %0 {to = i32} : (tensor<2x9xui8>) -> tensor<2x9xi32>
    %3 = graphcore.cast %1 {to = i32} : (tensor<9x4xi8>) -> tensor<9x4xi32>
    %4 = graphcore.mat_mul %2, %3 : (tensor<2x9xi32>, tensor<9x4xi32>) -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x4xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x9xui8>, %1: tensor<9x4xi8>):
    %2 = graphcore.pad %0 {low = [0, 0], high = [0, 1], interior = [0, 0], value = 0} : (tensor<2x9xui8>) -> tensor<2x10xui8>
    %3 = graphcore.slice %2 {starts = [0, 0], sizes = [2, 5], steps = [1, 2]} : (tensor<2x10xui8>) -> tensor<2x5xui8>
    %4 = graphcore.cast %3 {to = i32} : (tensor<2x5xui8>) -> tensor<2x5xi32>
    %5 = graphcore.slice %2 {starts = [0, 1], sizes = [2, 5], steps = [1, 2]} : (tensor<2x10xui8>) -> tensor<2x5xui8>
    %6 = graphcore.cast %5 {to = i32} : (tensor<2x5xui8>) -> tensor<2x5xi32>
    %7 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %8 = graphcore.shift %6, %7 {direction = "left"} : (tensor<2x5xi32>, tensor<i32>) -> tensor<2x5xi32>
    %9 = graphcore.or %4, %8 : (tensor<2x5xi32>, tensor<2x5xi32>) -> tensor<2x5xi32>
    %10 = graphcore.pad %1 {low = [0, 0], high = [1, 0], interior = [0, 0], value = 0} : (tensor<9x4xi8>) -> tensor<10x4xi8>
    %11 = graphcore.slice %10 {starts = [0, 0], sizes = [5, 4], steps = [2, 1]} : (tensor<10x4xi8>) -> tensor<5x4xi8>
    %12 = graphcore.cast %11 {to = i32} : (tensor<5x4xi8>) -> tensor<5x4xi32>
    %13 = pg.constant #pg.data<"ffff0000" : tensor<i32>>
    %14 = graphcore.and %12, %13 : (tensor<5x4xi32>, tensor<i32>) -> tensor<5x4xi32>
    %15 = graphcore.slice %10 {starts = [1, 0], sizes = [5, 4], steps = [2, 1]} : (tensor<10x4xi8>) -> tensor<5x4xi8>
    %16 = graphcore.cast %15 {to = i32} : (tensor<5x4xi8>) -> tensor<5x4xi32>
    %17 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %18 = graphcore.shift %16, %17 {direction = "left"} : (tensor<5x4xi32>, tensor<i32>) -> tensor<5x4xi32>
    %19 = graphcore.or %14, %18 : (tensor<5x4xi32>, tensor<5x4xi32>) -> tensor<5x4xi32>
    %20 = graphcore.dot_mat_mul %9, %19 {words = "i16"} : (tensor<2x5xi32>, tensor<5x4xi32>) -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %20 : tensor<2x4xi32>
  }
}
