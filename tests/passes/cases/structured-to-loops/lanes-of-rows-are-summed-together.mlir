// Short rows wait in local memory, and the lanes of four are added up together; a mask covers the last terms.
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
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4x6xf32>):
    %1 = tile.kernel chunks 1 : i64 inplace [] ins(%0 : tensor<4x6xf32>) {
    ^bb0(%2: index, %3: memref<24xf32>, %4: memref<4xf32>):
      %5 = memref.alloca() : memref<16xf32>
      %6 = arith.constant 0 : index
      %7 = arith.constant 4 : index
      %8 = arith.constant 1 : index
      %9 = arith.constant -0.000000e+00 : f32
      %10 = vector.broadcast %9 : f32 to vector<4xf32>
      %11 = arith.constant 6 : index
      %12 = arith.constant 2 : index
      %13 = arith.constant dense<[false, false, true, true]> : vector<4xi1>
      scf.for %14 = %6 to %7 step %8 {
        %15 = arith.muli %14, %11 : index
        %16 = vector.load %3[%15] : memref<24xf32>, vector<4xf32>
        %17 = arith.addf %10, %16 : vector<4xf32>
        %18 = arith.addi %15, %12 : index
        %19 = vector.load %3[%18] : memref<24xf32>, vector<4xf32>
        %20 = arith.addf %17, %19 : vector<4xf32>
        %21 = tile.select %13, %20, %17 : vector<4xi1>, vector<4xf32>
        %22 = arith.muli %14, %7 : index
        vector.store %21, %5[%22] : memref<16xf32>, vector<4xf32>
      }
      %23 = vector.load %5[%6] : memref<16xf32>, vector<4xf32>
      %24 = vector.load %5[%7] : memref<16xf32>, vector<4xf32>
      %25 = arith.constant 8 : index
      %26 = vector.load %5[%25] : memref<16xf32>, vector<4xf32>
      %27 = arith.constant 12 : index
      %28 = vector.load %5[%27] : memref<16xf32>, vector<4xf32>
      %29 = vector.shuffle %23, %24 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
      %30 = vector.shuffle %23, %24 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
      %31 = arith.addf %29, %30 : vector<4xf32>
      %32 = vector.shuffle %26, %28 [0, 1, 4, 5] : vector<4xf32>, vector<4xf32>
      %33 = vector.shuffle %26, %28 [2, 3, 6, 7] : vector<4xf32>, vector<4xf32>
      %34 = arith.addf %32, %33 : vector<4xf32>
      %35 = vector.shuffle %31, %34 [0, 2, 4, 6] : vector<4xf32>, vector<4xf32>
      %36 = vector.shuffle %31, %34 [1, 3, 5, 7] : vector<4xf32>, vector<4xf32>
      %37 = arith.addf %35, %36 : vector<4xf32>
      %38 = arith.constant 0.000000e+00 : f32
      %39 = vector.broadcast %38 : f32 to vector<4xf32>
      %40 = arith.addf %37, %39 : vector<4xf32>
      vector.store %40, %4[%6] : memref<4xf32>, vector<4xf32>
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<4xf32>
  }
}
