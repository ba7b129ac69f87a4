// -p parallelize-loops{threads=2}
// A gradient of weights is computed of tiles of both its factors: threads share both transforms.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<4x30x30x64xf32>, %dy: tensor<4x28x28x64xf32>):
    %0 = tile.transform_tiles %x : tensor<4x30x30x64xf32> domain [4, 28, 28] offset [0, 0] size 4 : i64 -> tensor<36x196x64xf32>
    %1 = tile.transform_gradient_tiles %dy : tensor<4x28x28x64xf32> domain [4, 28, 28] offset [0, 0] size 4 : i64 -> tensor<36x196x64xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %0, %1 : tensor<36x196x64xf32>, tensor<36x196x64xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<4x30x30x64xf32>, %dy: tensor<4x28x28x64xf32>):
    %0 = tile.transform_tiles %x : tensor<4x30x30x64xf32> domain [4, 28, 28] offset [0, 0] size 4 : i64 {cut = #tile.cut<loop 0 in 14 of 14>} -> tensor<36x196x64xf32>
    %1 = tile.transform_gradient_tiles %dy : tensor<4x28x28x64xf32> domain [4, 28, 28] offset [0, 0] size 4 : i64 {cut = #tile.cut<loop 0 in 14 of 14>} -> tensor<36x196x64xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %0, %1 : tensor<36x196x64xf32>, tensor<36x196x64xf32>
  }
}
