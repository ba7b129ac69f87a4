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
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<2x6xf32>):
    %1 = tile.kernel chunks 1 : i64 inplace [] ins(%0 : tensor<2x6xf32>) {
    ^bb0(%2: index, %3: memref<12xf32>, %4: memref<2xf32>):
      %5 = arith.constant 0 : index
      %6 = arith.constant 2 : index
      %7 = arith.constant 1 : index
      %8 = arith.constant -0.000000e+00 : f32
      %9 = vector.broadcast %8 : f32 to vector<4xf32>
      %10 = arith.constant 6 : index
      %11 = arith.constant dense<[false, false, true, true]> : vector<4xi1>
      %12 = arith.constant 0.000000e+00 : f32
      scf.for %13 = %5 to %6 step %7 {
        %14 = arith.muli %13, %10 : index
        %15 = vector.load %3[%14] : memref<12xf32>, vector<4xf32>
        %16 = arith.addf %9, %15 : vector<4xf32>
        %17 = arith.addi %14, %6 : index
        %18 = vector.load %3[%17] : memref<12xf32>, vector<4xf32>
        %19 = arith.addf %16, %18 : vector<4xf32>
        %20 = tile.select %11, %19, %16 : vector<4xi1>, vector<4xf32>
        %21 = vector.shuffle %20, %20 [2, 3, 0, 1] : vector<4xf32>, vector<4xf32>
        %22 = arith.addf %20, %21 : vector<4xf32>
        %23 = vector.shuffle %22, %22 [1, 0, 3, 2] : vector<4xf32>, vector<4xf32>
        %24 = arith.addf %22, %23 : vector<4xf32>
        %25 = vector.extract %24[0] : f32 from vector<4xf32>
        %26 = arith.addf %25, %12 : f32
        memref.store %26, %4[%13] : memref<2xf32>
      }
    } -> tensor<2xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<2xf32>
  }
}
