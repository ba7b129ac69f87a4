// Sums along rows.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x6xf32>):
    %1 = tile.reduce ins(%0 : tensor<2x6xf32>) domain [2, 6] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.addf %3, %2 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32):
      tile.yield %5 : f32
    } -> tensor<2xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<2xf32>
  }
}
// -----
builtin.module {
  func.func private @addf_2_f32_0(%0: index, %1: memref<12xf32>, %2: memref<2xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 2 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant -0.000000e+00 : f32
    %7 = vector.broadcast %6 : f32 to vector<4xf32>
    %8 = arith.constant 6 : index
    %9 = arith.constant dense<[false, false, true, true]> : vector<4xi1>
    %10 = arith.constant 0.000000e+00 : f32
    scf.for %11 = %3 to %4 step %5 {
      %12 = arith.muli %11, %8 : index
      %13 = vector.load %1[%12] : memref<12xf32>, vector<4xf32>
      %14 = arith.addf %7, %13 : vector<4xf32>
      %15 = arith.addi %12, %4 : index
      %16 = vector.load %1[%15] : memref<12xf32>, vector<4xf32>
      %17 = arith.addf %14, %16 : vector<4xf32>
      %18 = tile.select %9, %17, %14 : vector<4xi1>, vector<4xf32>
      %19 = vector.shuffle %18, %18 [2, 3, 0, 1] : vector<4xf32>, vector<4xf32>
      %20 = arith.addf %18, %19 : vector<4xf32>
      %21 = vector.shuffle %20, %20 [1, 0, 3, 2] : vector<4xf32>, vector<4xf32>
      %22 = arith.addf %20, %21 : vector<4xf32>
      %23 = vector.extract %22[0] : f32 from vector<4xf32>
      %24 = arith.addf %23, %10 : f32
      memref.store %24, %2[%11] : memref<2xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x6xf32>):
    %1 = tile.launch @addf_2_f32_0 chunks 1 : i64 inplace [](%0) : (tensor<2x6xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<2xf32>
  }
}
