// Partial sums of short rows are in local memory, and the lanes of four rows are summed together; a mask
// covers the last terms.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4x6xf32>):
    %1 = tile.reduce ins(%0 : tensor<4x6xf32>) domain [4, 6] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.addf %3, %2 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<4xf32>
  }
}
// -----
builtin.module {
  func.func private @addf_4_f32_0(%0: index, %1: memref<24xf32>, %2: memref<4xf32>) {
    %3 = memref.alloca() : memref<16xf32>
    %4 = arith.constant 0 : index
    %5 = arith.constant 4 : index
    %6 = arith.constant 1 : index
    %7 = arith.constant -0.000000e+00 : f32
    %8 = vector.broadcast %7 : f32 to vector<4xf32>
    %9 = arith.constant 6 : index
    %10 = arith.constant 2 : index
    %11 = arith.constant dense<[false, false, true, true]> : vector<4xi1>
    scf.for %12 = %4 to %5 step %6 {
      %13 = arith.muli %12, %9 : index
      %14 = vector.load %1[%13] : memref<24xf32>, vector<4xf32>
      %15 = arith.addf %8, %14 : vector<4xf32>
      %16 = arith.addi %13, %10 : index
      %17 = vector.load %1[%16] : memref<24xf32>, vector<4xf32>
      %18 = arith.addf %15, %17 : vector<4xf32>
      %19 = tile.select %11, %18, %15 : vector<4xi1>, vector<4xf32>
      %20 = arith.muli %12, %5 : index
      vector.store %19, %3[%20] : memref<16xf32>, vector<4xf32>
    }
    %21 = vector.load %3[%4] : memref<16xf32>, vector<4xf32>
    %22 = vector.load %3[%5] : memref<16xf32>, vector<4xf32>
    %23 = arith.constant 8 : index
    %24 = vector.load %3[%23] : memref<16xf32>, vector<4xf32>
    %25 = arith.constant 12 : index
    %26 = vector.load %3[%25] : memref<16xf32>, vector<4xf32>
    %27 = vector.shuffle %21, %22 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
    %28 = vector.shuffle %21, %22 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
    %29 = arith.addf %27, %28 : vector<4xf32>
    %30 = vector.shuffle %24, %26 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
    %31 = vector.shuffle %24, %26 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
    %32 = arith.addf %30, %31 : vector<4xf32>
    %33 = vector.shuffle %29, %32 [0, 2, 4, 6] : vector<4xf32>, vector<4xf32>
    %34 = vector.shuffle %29, %32 [1, 3, 5, 7] : vector<4xf32>, vector<4xf32>
    %35 = arith.addf %33, %34 : vector<4xf32>
    %36 = arith.constant 0.000000e+00 : f32
    %37 = vector.broadcast %36 : f32 to vector<4xf32>
    %38 = arith.addf %35, %37 : vector<4xf32>
    vector.store %38, %2[%4] : memref<4xf32>, vector<4xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4x6xf32>):
    %1 = tile.launch @addf_4_f32_0 chunks 1 : i64 inplace [](%0) : (tensor<4x6xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<4xf32>
  }
}
