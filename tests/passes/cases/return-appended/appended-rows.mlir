// A concatenation that appends to an input returns the new rows only; one that prepends, or starts with a computed
// tensor, is returned whole.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"new">] {
  ^bb0(%x: tensor<2x8x4xf32>, %new: tensor<2x1x4xf32>):
    %y = graphcore.concat %x, %new {axis = 1} : (tensor<2x8x4xf32>, tensor<2x1x4xf32>) -> tensor<2x9x4xf32>
    %n = graphcore.neg %x : (tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
    %w = graphcore.concat %n, %x {axis = 1} : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x16x4xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"w">], %y, %w : tensor<2x9x4xf32>, tensor<2x16x4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"new">] {
  ^bb0(%x: tensor<2x8x4xf32>, %new: tensor<2x1x4xf32>):
    %y = graphcore.concat %x, %new {axis = 1} : (tensor<2x8x4xf32>, tensor<2x1x4xf32>) -> tensor<2x9x4xf32>
    %n = graphcore.neg %x : (tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
    %w = graphcore.concat %n, %x {axis = 1} : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x16x4xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"w">], %new, %w : tensor<2x1x4xf32>, tensor<2x16x4xf32>
  }
}
