// Sums of chunks are accumulated in local memory, by loops over rows that initialize and finish them.
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
    %9 = arith.constant 8 : index
    %10 = arith.constant 4 : index
    %11 = arith.constant 0.000000e+00 : f32
    %12 = vector.broadcast %11 : f32 to vector<4xf32>
    scf.for %13 = %6 to %7 step %8 {
      %14 = arith.muli %13, %9 : index
      scf.for %15 = %6 to %9 step %10 {
        %16 = arith.addi %14, %15 : index
        vector.store %12, %5[%16] : memref<24xf32>, vector<4xf32>
      } {unroll}
    }
    %17 = arith.constant 2 : index
    %18 = memref.alloca() : memref<24xf32>
    %19 = arith.constant 32 : index
    scf.for %20 = %6 to %17 step %8 {
      scf.for %21 = %6 to %7 step %8 {
        %22 = arith.muli %21, %9 : index
        scf.for %23 = %6 to %9 step %10 {
          %24 = arith.addi %22, %23 : index
          vector.store %12, %18[%24] : memref<24xf32>, vector<4xf32>
        } {unroll}
      } {unroll}
      %25 = arith.muli %20, %10 : index
      %26 = arith.muli %20, %19 : index
      scf.for %27 = %6 to %10 step %8 {
        %28 = arith.addi %25, %27 : index
        %29 = arith.muli %27, %9 : index
        %30 = arith.addi %26, %29 : index
        scf.for %31 = %6 to %7 step %8 {
          %32 = arith.muli %31, %9 : index
          %33 = arith.addi %28, %32 : index
          %34 = memref.load %1[%33] : memref<24xf32>
          %35 = vector.broadcast %34 : f32 to vector<4xf32>
          scf.for %36 = %6 to %9 step %10 {
            %37 = arith.addi %32, %36 : index
            %38 = vector.load %18[%37] : memref<24xf32>, vector<4xf32>
            %39 = arith.addi %30, %36 : index
            %40 = vector.load %2[%39] : memref<64xf32>, vector<4xf32>
            %41 = vector.fma %35, %40, %38 : vector<4xf32>
            vector.store %41, %18[%37] : memref<24xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
      }
      scf.for %42 = %6 to %7 step %8 {
        %43 = arith.muli %42, %9 : index
        scf.for %44 = %6 to %9 step %10 {
          %45 = arith.addi %43, %44 : index
          %46 = vector.load %5[%45] : memref<24xf32>, vector<4xf32>
          %47 = vector.load %18[%45] : memref<24xf32>, vector<4xf32>
          %48 = arith.addf %46, %47 : vector<4xf32>
          vector.store %48, %5[%45] : memref<24xf32>, vector<4xf32>
        } {unroll}
      } {unroll}
    }
    scf.for %49 = %6 to %7 step %8 {
      %50 = arith.muli %49, %9 : index
      scf.for %51 = %6 to %9 step %10 {
        %52 = arith.addi %50, %51 : index
        %53 = vector.load %5[%52] : memref<24xf32>, vector<4xf32>
        %54 = vector.load %3[%51] : memref<8xf32>, vector<4xf32>
        %55 = arith.addf %53, %54 : vector<4xf32>
        vector.store %55, %4[%52] : memref<24xf32>, vector<4xf32>
      } {unroll}
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<3x8xf32>, %1: tensor<8x8xf32>, %2: tensor<8xf32>):
    %3 = tile.launch @fma_addf_24_f32_0 chunks 1 : i64 inplace [](%0, %1, %2) : (tensor<3x8xf32>, tensor<8x8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<3x8xf32>
  }
}
