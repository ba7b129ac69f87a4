// A sum of zero-padded pieces is their concatenation: the gradient of a tensor that was split.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"c">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<2x1xf32>, %2: tensor<2x2xf32>):
    %3 = graphcore.pad %0 {low = [0, 0], high = [0, 4], interior = [0, 0], value = 0.000000e+00} : (tensor<2x3xf32>) -> tensor<2x7xf32>
    %4 = graphcore.pad %2 {low = [0, 4], high = [0, 1], interior = [0, 0], value = 0.000000e+00} : (tensor<2x2xf32>) -> tensor<2x7xf32>
    %5 = graphcore.add %3, %4 : (tensor<2x7xf32>, tensor<2x7xf32>) -> tensor<2x7xf32>
    %6 = graphcore.pad %1 {low = [0, 3], high = [0, 3], interior = [0, 0], value = 0.000000e+00} : (tensor<2x1xf32>) -> tensor<2x7xf32>
    %7 = graphcore.add %5, %6 : (tensor<2x7xf32>, tensor<2x7xf32>) -> tensor<2x7xf32>
    pg.return [#pg.bytes<"y">], %7 : tensor<2x7xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"c">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<2x1xf32>, %2: tensor<2x2xf32>):
    %3 = graphcore.concat %0, %1, %2 {axis = 1} : (tensor<2x3xf32>, tensor<2x1xf32>, tensor<2x2xf32>) -> tensor<2x6xf32>
    %4 = graphcore.pad %3 {low = [0, 0], high = [0, 1], interior = [0, 0], value = 0.000000e+00} : (tensor<2x6xf32>) -> tensor<2x7xf32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x7xf32>
  }
}
