// Of bytes with and without sign, a word holds two, as numbers of 16 bits.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x9xui8>, %1: tensor<9x3xi8>):
    %2 = graphcore.cast %0 {to = i32} : (tensor<2x9xui8>) -> tensor<2x9xi32>
    %3 = graphcore.cast %1 {to = i32} : (tensor<9x3xi8>) -> tensor<9x3xi32>
    %4 = graphcore.mat_mul %2, %3 : (tensor<2x9xi32>, tensor<9x3xi32>) -> tensor<2x3xi32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x3xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x9xui8>, %1: tensor<9x3xi8>):
    %2 = graphcore.cast %0 {to = i32} : (tensor<2x9xui8>) -> tensor<2x9xi32>
    %3 = graphcore.cast %1 {to = i32} : (tensor<9x3xi8>) -> tensor<9x3xi32>
    %4 = graphcore.pad %2 {low = [0, 0], high = [0, 1], interior = [0, 0], value = 0} : (tensor<2x9xi32>) -> tensor<2x10xi32>
    %5 = graphcore.slice %4 {starts = [0, 0], sizes = [2, 5], steps = [1, 2]} : (tensor<2x10xi32>) -> tensor<2x5xi32>
    %6 = pg.constant #pg.data<"ffff0000" : tensor<i32>>
    %7 = graphcore.and %5, %6 : (tensor<2x5xi32>, tensor<i32>) -> tensor<2x5xi32>
    %8 = graphcore.slice %4 {starts = [0, 1], sizes = [2, 5], steps = [1, 2]} : (tensor<2x10xi32>) -> tensor<2x5xi32>
    %9 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %10 = graphcore.shift %8, %9 {direction = "left"} : (tensor<2x5xi32>, tensor<i32>) -> tensor<2x5xi32>
    %11 = graphcore.or %7, %10 : (tensor<2x5xi32>, tensor<2x5xi32>) -> tensor<2x5xi32>
    %12 = graphcore.pad %3 {low = [0, 0], high = [1, 0], interior = [0, 0], value = 0} : (tensor<9x3xi32>) -> tensor<10x3xi32>
    %13 = graphcore.slice %12 {starts = [0, 0], sizes = [5, 3], steps = [2, 1]} : (tensor<10x3xi32>) -> tensor<5x3xi32>
    %14 = pg.constant #pg.data<"ffff0000" : tensor<i32>>
    %15 = graphcore.and %13, %14 : (tensor<5x3xi32>, tensor<i32>) -> tensor<5x3xi32>
    %16 = graphcore.slice %12 {starts = [1, 0], sizes = [5, 3], steps = [2, 1]} : (tensor<10x3xi32>) -> tensor<5x3xi32>
    %17 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %18 = graphcore.shift %16, %17 {direction = "left"} : (tensor<5x3xi32>, tensor<i32>) -> tensor<5x3xi32>
    %19 = graphcore.or %15, %18 : (tensor<5x3xi32>, tensor<5x3xi32>) -> tensor<5x3xi32>
    %20 = graphcore.dot_mat_mul %11, %19 {words = "i16"} : (tensor<2x5xi32>, tensor<5x3xi32>) -> tensor<2x3xi32>
    pg.return [#pg.bytes<"y">], %20 : tensor<2x3xi32>
  }
}
