// Two equal kernels become one function.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.kernel chunks 1 : i64 inplace [0, 0] ins(%0 : tensor<4xf32>) {
    ^bb0(%2: index, %3: memref<4xf32>, %4: memref<4xf32>):
      %5 = arith.constant 0 : index
      %6 = vector.load %3[%5] : memref<4xf32>, vector<4xf32>
      %7 = math.exp %6 : vector<4xf32>
      vector.store %7, %4[%5] : memref<4xf32>, vector<4xf32>
    } -> tensor<4xf32>
    %2 = tile.kernel chunks 1 : i64 inplace [0, 0] ins(%1 : tensor<4xf32>) {
    ^bb0(%3: index, %4: memref<4xf32>, %5: memref<4xf32>):
      %6 = arith.constant 0 : index
      %7 = vector.load %4[%6] : memref<4xf32>, vector<4xf32>
      %8 = math.exp %7 : vector<4xf32>
      vector.store %8, %5[%6] : memref<4xf32>, vector<4xf32>
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %1, %2 : tensor<4xf32>, tensor<4xf32>
  }
}
// -----
builtin.module {
  func.func private @exp_4_f32_0(%0: index, %1: memref<4xf32>, %2: memref<4xf32>) {
    %3 = arith.constant 0 : index
    %4 = vector.load %1[%3] : memref<4xf32>, vector<4xf32>
    %5 = math.exp %4 : vector<4xf32>
    vector.store %5, %2[%3] : memref<4xf32>, vector<4xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.launch @exp_4_f32_0 chunks 1 : i64 inplace [0, 0](%0) : (tensor<4xf32>) -> tensor<4xf32>
    %2 = tile.launch @exp_4_f32_0 chunks 1 : i64 inplace [0, 0](%1) : (tensor<4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"v0">, #pg.bytes<"v1">], %1, %2 : tensor<4xf32>, tensor<4xf32>
  }
}
