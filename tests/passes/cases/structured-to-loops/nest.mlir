// A nest is one kernel: a scalar for each row is a value, a row of exponentials is local memory.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4x16xf32>):
    %1 = tile.fused ins(%0 : tensor<4x16xf32>) domain [4] steps [1] {
    ^bb0(%2: tensor<4x16xf32>):
      %3 = tile.reduce ins(%2 : tensor<4x16xf32>) domain [4, 16] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0xff800000 : f32] {
      ^bb0(%4: f32, %5: f32):
        %6 = arith.maximumf %5, %4 : f32
        tile.yield %6 : f32
      } epilogue {
      ^bb0(%7: f32):
        tile.yield %7 : f32
      } -> tensor<4xf32>
      %8 = tile.map ins(%2, %3 : tensor<4x16xf32>, tensor<4xf32>) domain [4, 16] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
      ^bb0(%9: f32, %10: f32):
        %11 = arith.subf %9, %10 : f32
        %12 = math.exp %11 : f32
        tile.yield %12 : f32
      } -> tensor<4x16xf32>
      %13 = tile.reduce ins(%8 : tensor<4x16xf32>) domain [4, 16] parallel 1 : i64 maps [affine_map<(d0, d1) -> (d0, d1)>] epilogue_maps [] initial [0.000000e+00 : f32] {
      ^bb0(%14: f32, %15: f32):
        %16 = arith.addf %15, %14 : f32
        tile.yield %16 : f32
      } epilogue {
      ^bb0(%17: f32):
        tile.yield %17 : f32
      } -> tensor<4xf32>
      %18 = tile.map ins(%8, %13 : tensor<4x16xf32>, tensor<4xf32>) domain [4, 16] maps [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
      ^bb0(%19: f32, %20: f32):
        %21 = arith.constant 1.000000e+00 : f32
        %22 = arith.divf %21, %20 : f32
        %23 = arith.mulf %19, %22 : f32
        tile.yield %23 : f32
      } -> tensor<4x16xf32>
      tile.yield %18 : tensor<4x16xf32>
    } -> tensor<4x16xf32>
    pg.return [#pg.bytes<"y">], %1 : tensor<4x16xf32>
  }
}
// -----
builtin.module {
  func.func private @maximumf_subf_exp_64_f32_0(%0: index, %1: memref<64xf32>, %2: memref<64xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 4 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 0xff800000 : f32
    %7 = vector.broadcast %6 : f32 to vector<16xf32>
    %8 = arith.constant 16 : index
    %9 = memref.alloca() : memref<16xf32>
    %10 = arith.constant -0.000000e+00 : f32
    %11 = vector.broadcast %10 : f32 to vector<16xf32>
    %12 = arith.constant 0.000000e+00 : f32
    %13 = arith.constant 1.000000e+00 : f32
    scf.for %14 = %3 to %4 step %5 {
      %15 = arith.muli %14, %8 : index
      %16 = vector.load %1[%15] : memref<64xf32>, vector<16xf32>
      %17 = arith.maximumf %7, %16 : vector<16xf32>
      %18 = vector.shuffle %17, %17 [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7] : vector<16xf32>, vector<16xf32>
      %19 = arith.maximumf %17, %18 : vector<16xf32>
      %20 = vector.shuffle %19, %19 [4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11] : vector<16xf32>, vector<16xf32>
      %21 = arith.maximumf %19, %20 : vector<16xf32>
      %22 = vector.shuffle %21, %21 [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13] : vector<16xf32>, vector<16xf32>
      %23 = arith.maximumf %21, %22 : vector<16xf32>
      %24 = vector.shuffle %23, %23 [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14] : vector<16xf32>, vector<16xf32>
      %25 = arith.maximumf %23, %24 : vector<16xf32>
      %26 = vector.extract %25[0] : f32 from vector<16xf32>
      %27 = vector.load %1[%15] : memref<64xf32>, vector<16xf32>
      %28 = vector.broadcast %26 : f32 to vector<16xf32>
      %29 = arith.subf %27, %28 : vector<16xf32>
      %30 = math.exp %29 : vector<16xf32>
      vector.store %30, %9[%3] : memref<16xf32>, vector<16xf32>
      %31 = vector.load %9[%3] : memref<16xf32>, vector<16xf32>
      %32 = arith.addf %11, %31 : vector<16xf32>
      %33 = vector.shuffle %32, %32 [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7] : vector<16xf32>, vector<16xf32>
      %34 = arith.addf %32, %33 : vector<16xf32>
      %35 = vector.shuffle %34, %34 [4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11] : vector<16xf32>, vector<16xf32>
      %36 = arith.addf %34, %35 : vector<16xf32>
      %37 = vector.shuffle %36, %36 [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13] : vector<16xf32>, vector<16xf32>
      %38 = arith.addf %36, %37 : vector<16xf32>
      %39 = vector.shuffle %38, %38 [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14] : vector<16xf32>, vector<16xf32>
      %40 = arith.addf %38, %39 : vector<16xf32>
      %41 = vector.extract %40[0] : f32 from vector<16xf32>
      %42 = arith.addf %41, %12 : f32
      %43 = vector.load %9[%3] : memref<16xf32>, vector<16xf32>
      %44 = arith.divf %13, %42 : f32
      %45 = vector.broadcast %44 : f32 to vector<16xf32>
      %46 = arith.mulf %43, %45 : vector<16xf32>
      vector.store %46, %2[%15] : memref<64xf32>, vector<16xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4x16xf32>):
    %1 = tile.launch @maximumf_subf_exp_64_f32_0 chunks 1 : i64 inplace [0, 0](%0) : (tensor<4x16xf32>) -> tensor<4x16xf32>
    pg.return [#pg.bytes<"y">], %1 : tensor<4x16xf32>
  }
}
