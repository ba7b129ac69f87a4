// A slice of a transpose moves before it if the transpose has no other reader, is undone, or moves only axes of size 1.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<1x6x9xf32>, %1: tensor<2x5x3xf32>):
    %2 = graphcore.transpose %0 {perm = [0, 2, 1]} : (tensor<1x6x9xf32>) -> tensor<1x9x6xf32>
    %3 = graphcore.slice %2 {starts = [0, 0, 4], sizes = [1, 9, 2], steps = [1, 1, 1]} : (tensor<1x9x6xf32>) -> tensor<1x9x2xf32>
    %4 = graphcore.transpose %3 {perm = [0, 2, 1]} : (tensor<1x9x2xf32>) -> tensor<1x2x9xf32>
    %5 = graphcore.slice %2 {starts = [0, 0, 3], sizes = [1, 9, 1], steps = [1, 1, 1]} : (tensor<1x9x6xf32>) -> tensor<1x9x1xf32>
    %6 = graphcore.slice %2 {starts = [0, 0, 1], sizes = [1, 9, 2], steps = [1, 1, 1]} : (tensor<1x9x6xf32>) -> tensor<1x9x2xf32>
    %7 = graphcore.transpose %1 {perm = [2, 0, 1]} : (tensor<2x5x3xf32>) -> tensor<3x2x5xf32>
    %8 = graphcore.slice %7 {starts = [2, 0, 0], sizes = [2, 2, 3], steps = [-1, 1, 2]} : (tensor<3x2x5xf32>) -> tensor<2x2x3xf32>
    pg.return [#pg.bytes<"back">, #pg.bytes<"unit">, #pg.bytes<"rest">, #pg.bytes<"alone">], %4, %5, %6, %8 : tensor<1x2x9xf32>, tensor<1x9x1xf32>, tensor<1x9x2xf32>, tensor<2x2x3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<1x6x9xf32>, %1: tensor<2x5x3xf32>):
    %2 = graphcore.slice %0 {starts = [0, 4, 0], sizes = [1, 2, 9], steps = [1, 1, 1]} : (tensor<1x6x9xf32>) -> tensor<1x2x9xf32>
    %3 = graphcore.slice %0 {starts = [0, 3, 0], sizes = [1, 1, 9], steps = [1, 1, 1]} : (tensor<1x6x9xf32>) -> tensor<1x1x9xf32>
    %4 = graphcore.reshape %3 {shape = [1, 9, 1]} : (tensor<1x1x9xf32>) -> tensor<1x9x1xf32>
    %5 = graphcore.slice %0 {starts = [0, 1, 0], sizes = [1, 2, 9], steps = [1, 1, 1]} : (tensor<1x6x9xf32>) -> tensor<1x2x9xf32>
    %6 = graphcore.transpose %5 {perm = [0, 2, 1]} : (tensor<1x2x9xf32>) -> tensor<1x9x2xf32>
    %7 = graphcore.slice %1 {starts = [0, 0, 2], sizes = [2, 3, 2], steps = [1, 2, -1]} : (tensor<2x5x3xf32>) -> tensor<2x3x2xf32>
    %8 = graphcore.transpose %7 {perm = [2, 0, 1]} : (tensor<2x3x2xf32>) -> tensor<2x2x3xf32>
    pg.return [#pg.bytes<"back">, #pg.bytes<"unit">, #pg.bytes<"rest">, #pg.bytes<"alone">], %2, %4, %6, %8 : tensor<1x2x9xf32>, tensor<1x9x1xf32>, tensor<1x9x2xf32>, tensor<2x2x3xf32>
  }
}
