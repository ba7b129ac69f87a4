// Operands are transposed in registers; what is contiguous along the result is added by columns.
// -p structured-to-loops{vector-bytes=16}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"r">] {
  ^bb0(%0: tensor<4x8xf32>, %1: tensor<8x4xf32>):
    %2 = tile.map ins(%0, %1 : tensor<4x8xf32>, tensor<8x4xf32>) domain [8, 4] maps [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.addf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<8x4xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<8x4xf32>
  }
}
// -----
builtin.module {
  func.func private @addf_32_f32_0(%0: index, %1: memref<32xf32>, %2: memref<32xf32>, %3: memref<32xf32>) {
    %4 = arith.constant 0 : index
    %5 = arith.constant 8 : index
    %6 = arith.constant 4 : index
    %7 = arith.constant 16 : index
    %8 = arith.constant 24 : index
    %9 = arith.constant 12 : index
    scf.for %10 = %4 to %5 step %6 {
      %11 = vector.load %1[%10] : memref<32xf32>, vector<4xf32>
      %12 = arith.addi %10, %5 : index
      %13 = vector.load %1[%12] : memref<32xf32>, vector<4xf32>
      %14 = arith.addi %10, %7 : index
      %15 = vector.load %1[%14] : memref<32xf32>, vector<4xf32>
      %16 = arith.addi %10, %8 : index
      %17 = vector.load %1[%16] : memref<32xf32>, vector<4xf32>
      %18 = vector.shuffle %11, %13 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
      %19 = vector.shuffle %11, %13 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
      %20 = vector.shuffle %15, %17 [0, 4, 2, 6] : vector<4xf32>, vector<4xf32>
      %21 = vector.shuffle %15, %17 [1, 5, 3, 7] : vector<4xf32>, vector<4xf32>
      %22 = vector.shuffle %18, %20 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
      %23 = vector.shuffle %18, %20 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
      %24 = vector.shuffle %19, %21 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
      %25 = vector.shuffle %19, %21 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
      %26 = arith.muli %10, %6 : index
      %27 = vector.load %2[%26] : memref<32xf32>, vector<4xf32>
      %28 = arith.addf %22, %27 : vector<4xf32>
      vector.store %28, %3[%26] : memref<32xf32>, vector<4xf32>
      %29 = arith.addi %26, %6 : index
      %30 = vector.load %2[%29] : memref<32xf32>, vector<4xf32>
      %31 = arith.addf %24, %30 : vector<4xf32>
      vector.store %31, %3[%29] : memref<32xf32>, vector<4xf32>
      %32 = arith.addi %26, %5 : index
      %33 = vector.load %2[%32] : memref<32xf32>, vector<4xf32>
      %34 = arith.addf %23, %33 : vector<4xf32>
      vector.store %34, %3[%32] : memref<32xf32>, vector<4xf32>
      %35 = arith.addi %26, %9 : index
      %36 = vector.load %2[%35] : memref<32xf32>, vector<4xf32>
      %37 = arith.addf %25, %36 : vector<4xf32>
      vector.store %37, %3[%35] : memref<32xf32>, vector<4xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"r">] {
  ^bb0(%0: tensor<4x8xf32>, %1: tensor<8x4xf32>):
    %2 = tile.launch @addf_32_f32_0 chunks 1 : i64 inplace [1, 0](%0, %1) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<8x4xf32>
  }
}
