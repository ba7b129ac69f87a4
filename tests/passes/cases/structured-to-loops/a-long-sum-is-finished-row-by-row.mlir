// Sums of chunks are added in local memory: there they begin, and are finished, in a loop over rows.
// -p structured-to-loops{vector-bytes=16}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<3x8xf32>, %1: tensor<8x8xf32>, %2: tensor<8xf32>):
    %3 = tile.contract %0, %1 : tensor<3x8xf32>, tensor<8x8xf32> epilogue_inputs(%2 : tensor<8xf32>) domain [3, 8, 8]
        parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2]
        schedule <n_dim 1, n_vectors 2, m_dim 0, mr 3, kc 4, lanes 4> epilogue {
    ^bb0(%4: f32, %5: f32):
      %6 = arith.addf %4, %5 : f32
      tile.yield %6 : f32
    } -> tensor<3x8xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<3x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<3x8xf32>, %1: tensor<8x8xf32>, %2: tensor<8xf32>):
    %3 = tile.kernel chunks 1 : i64 inplace [] ins(%0, %1, %2 : tensor<3x8xf32>, tensor<8x8xf32>, tensor<8xf32>) {
    ^bb0(%4: index, %5: memref<24xf32>, %6: memref<64xf32>, %7: memref<8xf32>, %8: memref<24xf32>):
      %9 = memref.alloca() : memref<24xf32>
      %10 = arith.constant 0 : index
      %11 = arith.constant 3 : index
      %12 = arith.constant 1 : index
      %13 = arith.constant 0.000000e+00 : f32
      %14 = vector.broadcast %13 : f32 to vector<4xf32>
      %15 = arith.constant 8 : index
      %16 = arith.constant 4 : index
      scf.for %17 = %10 to %11 step %12 {
        %18 = arith.muli %17, %15 : index
        vector.store %14, %9[%18] : memref<24xf32>, vector<4xf32>
        %19 = arith.addi %18, %16 : index
        vector.store %14, %9[%19] : memref<24xf32>, vector<4xf32>
      }
      %20 = arith.constant 2 : index
      %21 = arith.constant 32 : index
      %22 = arith.constant 16 : index
      %23 = arith.constant 12 : index
      %24 = arith.constant 20 : index
      scf.for %25 = %10 to %20 step %12 {
        %26 = arith.muli %25, %16 : index
        %27 = arith.muli %25, %21 : index
        %28, %29, %30, %31, %32, %33 = scf.for %34 = %10 to %16 step %12
            iter_args(%35 = %14, %36 = %14, %37 = %14, %38 = %14, %39 = %14, %40 = %14) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
          %41 = arith.addi %26, %34 : index
          %42 = memref.load %5[%41] : memref<24xf32>
          %43 = vector.broadcast %42 : f32 to vector<4xf32>
          %44 = arith.muli %34, %15 : index
          %45 = arith.addi %27, %44 : index
          %46 = vector.load %6[%45] : memref<64xf32>, vector<4xf32>
          %47 = vector.fma %43, %46, %35 : vector<4xf32>
          %48 = arith.addi %45, %16 : index
          %49 = vector.load %6[%48] : memref<64xf32>, vector<4xf32>
          %50 = vector.fma %43, %49, %36 : vector<4xf32>
          %51 = arith.addi %41, %15 : index
          %52 = memref.load %5[%51] : memref<24xf32>
          %53 = vector.broadcast %52 : f32 to vector<4xf32>
          %54 = vector.fma %53, %46, %37 : vector<4xf32>
          %55 = vector.fma %53, %49, %38 : vector<4xf32>
          %56 = arith.addi %41, %22 : index
          %57 = memref.load %5[%56] : memref<24xf32>
          %58 = vector.broadcast %57 : f32 to vector<4xf32>
          %59 = vector.fma %58, %46, %39 : vector<4xf32>
          %60 = vector.fma %58, %49, %40 : vector<4xf32>
          scf.yield %47, %50, %54, %55, %59, %60 : vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>
        }
        %61 = vector.load %9[%10] : memref<24xf32>, vector<4xf32>
        %62 = arith.addf %61, %28 : vector<4xf32>
        vector.store %62, %9[%10] : memref<24xf32>, vector<4xf32>
        %63 = vector.load %9[%16] : memref<24xf32>, vector<4xf32>
        %64 = arith.addf %63, %29 : vector<4xf32>
        vector.store %64, %9[%16] : memref<24xf32>, vector<4xf32>
        %65 = vector.load %9[%15] : memref<24xf32>, vector<4xf32>
        %66 = arith.addf %65, %30 : vector<4xf32>
        vector.store %66, %9[%15] : memref<24xf32>, vector<4xf32>
        %67 = vector.load %9[%23] : memref<24xf32>, vector<4xf32>
        %68 = arith.addf %67, %31 : vector<4xf32>
        vector.store %68, %9[%23] : memref<24xf32>, vector<4xf32>
        %69 = vector.load %9[%22] : memref<24xf32>, vector<4xf32>
        %70 = arith.addf %69, %32 : vector<4xf32>
        vector.store %70, %9[%22] : memref<24xf32>, vector<4xf32>
        %71 = vector.load %9[%24] : memref<24xf32>, vector<4xf32>
        %72 = arith.addf %71, %33 : vector<4xf32>
        vector.store %72, %9[%24] : memref<24xf32>, vector<4xf32>
      }
      scf.for %73 = %10 to %11 step %12 {
        %74 = arith.muli %73, %15 : index
        %75 = vector.load %9[%74] : memref<24xf32>, vector<4xf32>
        %76 = arith.addi %74, %16 : index
        %77 = vector.load %9[%76] : memref<24xf32>, vector<4xf32>
        %78 = vector.load %7[%10] : memref<8xf32>, vector<4xf32>
        %79 = arith.addf %75, %78 : vector<4xf32>
        vector.store %79, %8[%74] : memref<24xf32>, vector<4xf32>
        %80 = vector.load %7[%16] : memref<8xf32>, vector<4xf32>
        %81 = arith.addf %77, %80 : vector<4xf32>
        vector.store %81, %8[%76] : memref<24xf32>, vector<4xf32>
      }
    } -> tensor<3x8xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<3x8xf32>
  }
}
