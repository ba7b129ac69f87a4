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
      %11 = arith.constant 4 : index
      %12 = arith.constant 0.000000e+00 : f32
      scf.for %13 = %5 to %6 step %7 {
        %14 = arith.muli %13, %10 : index
        %15 = vector.load %3[%14] : memref<12xf32>, vector<4xf32>
        %16 = arith.addf %9, %15 : vector<4xf32>
        %17, %18 = scf.for %19 = %11 to %10 step %7 iter_args(%20 = %16, %21 = %8) -> (vector<4xf32>, f32) {
          %22 = arith.addi %14, %19 : index
          %23 = memref.load %3[%22] : memref<12xf32>
          %24 = arith.addf %21, %23 : f32
          scf.yield %20, %24 : vector<4xf32>, f32
        }
        %25 = vector.shuffle %17, %17 [2, 3, 0, 1] : vector<4xf32>, vector<4xf32>
        %26 = arith.addf %17, %25 : vector<4xf32>
        %27 = vector.shuffle %26, %26 [1, 0, 3, 2] : vector<4xf32>, vector<4xf32>
        %28 = arith.addf %26, %27 : vector<4xf32>
        %29 = vector.extract %28[0] : f32 from vector<4xf32>
        %30 = arith.addf %29, %18 : f32
        %31 = arith.addf %30, %12 : f32
        memref.store %31, %4[%13] : memref<2xf32>
      }
    } -> tensor<2xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<2xf32>
  }
}
