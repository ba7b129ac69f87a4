// Sums of chunks are added in local memory: there they begin, and are finished, in a loop over rows.
// -p structured-to-loops{vector-bytes=16}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<3x8xf32>, %1: tensor<8x8xf32>, %2: tensor<8xf32>):
    %3 = tile.reduce ins(%0, %1 : tensor<3x8xf32>, tensor<8x8xf32>) epilogue_inputs(%2 : tensor<8xf32>) domain [3, 8, 8]
        parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32
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
  func.func private @fma_addf_24_f32_0(%0: index, %1: memref<24xf32>, %2: memref<64xf32>, %3: memref<8xf32>, %4: memref<24xf32>) {
    %5 = memref.alloca() : memref<24xf32>
    %6 = arith.constant 0 : index
    %7 = arith.constant 3 : index
    %8 = arith.constant 1 : index
    %9 = arith.constant 0.000000e+00 : f32
    %10 = vector.broadcast %9 : f32 to vector<4xf32>
    %11 = arith.constant 8 : index
    %12 = arith.constant 4 : index
    scf.for %13 = %6 to %7 step %8 {
      %14 = arith.muli %13, %11 : index
      vector.store %10, %5[%14] : memref<24xf32>, vector<4xf32>
      %15 = arith.addi %14, %12 : index
      vector.store %10, %5[%15] : memref<24xf32>, vector<4xf32>
    }
    %16 = arith.constant 2 : index
    %17 = arith.constant 32 : index
    %18 = arith.constant 16 : index
    %19 = arith.constant 12 : index
    %20 = arith.constant 20 : index
    scf.for %21 = %6 to %16 step %8 {
      %22 = arith.muli %21, %12 : index
      %23 = arith.muli %21, %17 : index
      %24, %25, %26, %27, %28, %29 = scf.for %30 = %6 to %12 step %8
          iter_args(%31 = %10, %32 = %10, %33 = %10, %34 = %10, %35 = %10, %36 = %10) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
        %37 = arith.addi %22, %30 : index
        %38 = memref.load %1[%37] : memref<24xf32>
        %39 = vector.broadcast %38 : f32 to vector<4xf32>
        %40 = arith.muli %30, %11 : index
        %41 = arith.addi %23, %40 : index
        %42 = vector.load %2[%41] : memref<64xf32>, vector<4xf32>
        %43 = vector.fma %39, %42, %31 : vector<4xf32>
        %44 = arith.addi %41, %12 : index
        %45 = vector.load %2[%44] : memref<64xf32>, vector<4xf32>
        %46 = vector.fma %39, %45, %32 : vector<4xf32>
        %47 = arith.addi %37, %11 : index
        %48 = memref.load %1[%47] : memref<24xf32>
        %49 = vector.broadcast %48 : f32 to vector<4xf32>
        %50 = vector.fma %49, %42, %33 : vector<4xf32>
        %51 = vector.fma %49, %45, %34 : vector<4xf32>
        %52 = arith.addi %37, %18 : index
        %53 = memref.load %1[%52] : memref<24xf32>
        %54 = vector.broadcast %53 : f32 to vector<4xf32>
        %55 = vector.fma %54, %42, %35 : vector<4xf32>
        %56 = vector.fma %54, %45, %36 : vector<4xf32>
        scf.yield %43, %46, %50, %51, %55, %56 : vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>
      }
      %57 = vector.load %5[%6] : memref<24xf32>, vector<4xf32>
      %58 = arith.addf %57, %24 : vector<4xf32>
      vector.store %58, %5[%6] : memref<24xf32>, vector<4xf32>
      %59 = vector.load %5[%12] : memref<24xf32>, vector<4xf32>
      %60 = arith.addf %59, %25 : vector<4xf32>
      vector.store %60, %5[%12] : memref<24xf32>, vector<4xf32>
      %61 = vector.load %5[%11] : memref<24xf32>, vector<4xf32>
      %62 = arith.addf %61, %26 : vector<4xf32>
      vector.store %62, %5[%11] : memref<24xf32>, vector<4xf32>
      %63 = vector.load %5[%19] : memref<24xf32>, vector<4xf32>
      %64 = arith.addf %63, %27 : vector<4xf32>
      vector.store %64, %5[%19] : memref<24xf32>, vector<4xf32>
      %65 = vector.load %5[%18] : memref<24xf32>, vector<4xf32>
      %66 = arith.addf %65, %28 : vector<4xf32>
      vector.store %66, %5[%18] : memref<24xf32>, vector<4xf32>
      %67 = vector.load %5[%20] : memref<24xf32>, vector<4xf32>
      %68 = arith.addf %67, %29 : vector<4xf32>
      vector.store %68, %5[%20] : memref<24xf32>, vector<4xf32>
    }
    scf.for %69 = %6 to %7 step %8 {
      %70 = arith.muli %69, %11 : index
      %71 = vector.load %5[%70] : memref<24xf32>, vector<4xf32>
      %72 = arith.addi %70, %12 : index
      %73 = vector.load %5[%72] : memref<24xf32>, vector<4xf32>
      %74 = vector.load %3[%6] : memref<8xf32>, vector<4xf32>
      %75 = arith.addf %71, %74 : vector<4xf32>
      vector.store %75, %4[%70] : memref<24xf32>, vector<4xf32>
      %76 = vector.load %3[%12] : memref<8xf32>, vector<4xf32>
      %77 = arith.addf %73, %76 : vector<4xf32>
      vector.store %77, %4[%72] : memref<24xf32>, vector<4xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<3x8xf32>, %1: tensor<8x8xf32>, %2: tensor<8xf32>):
    %3 = tile.launch @fma_addf_24_f32_0 chunks 1 : i64 inplace [](%0, %1, %2) : (tensor<3x8xf32>, tensor<8x8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<3x8xf32>
  }
}
