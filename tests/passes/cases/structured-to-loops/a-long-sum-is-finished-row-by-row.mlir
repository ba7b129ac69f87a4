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
  func.func private @mulf_addf_24_f32_0(%0: index, %1: memref<24xf32>, %2: memref<64xf32>, %3: memref<8xf32>, %4: memref<24xf32>) {
    %5 = memref.alloca() : memref<24xf32>
    %6 = arith.constant 0 : index
    %7 = arith.constant 3 : index
    %8 = arith.constant 1 : index
    %9 = arith.constant 8 : index
    %10 = arith.constant 0.000000e+00 : f32
    scf.for %11 = %6 to %7 step %8 {
      %12 = arith.muli %11, %9 : index
      scf.for %13 = %6 to %9 step %8 {
        %14 = arith.addi %12, %13 : index
        memref.store %10, %5[%14] : memref<24xf32>
      } {vectorize = array<i64: 4, 4>}
    }
    %15 = arith.constant 2 : index
    %16 = memref.alloca() : memref<24xf32>
    %17 = arith.constant 4 : index
    %18 = arith.constant 32 : index
    scf.for %19 = %6 to %15 step %8 {
      scf.for %20 = %6 to %7 step %8 {
        %21 = arith.muli %20, %9 : index
        scf.for %22 = %6 to %9 step %8 {
          %23 = arith.addi %21, %22 : index
          memref.store %10, %16[%23] : memref<24xf32>
        } {vectorize = array<i64: 4, 4>}
      } {unroll}
      %24 = arith.muli %19, %17 : index
      %25 = arith.muli %19, %18 : index
      scf.for %26 = %6 to %17 step %8 {
        %27 = arith.addi %24, %26 : index
        %28 = arith.muli %26, %9 : index
        %29 = arith.addi %25, %28 : index
        scf.for %30 = %6 to %7 step %8 {
          %31 = arith.muli %30, %9 : index
          %32 = arith.addi %27, %31 : index
          %33 = memref.load %1[%32] : memref<24xf32>
          scf.for %34 = %6 to %9 step %8 {
            %35 = arith.addi %31, %34 : index
            %36 = memref.load %16[%35] : memref<24xf32>
            %37 = arith.addi %29, %34 : index
            %38 = memref.load %2[%37] : memref<64xf32>
            %39 = arith.mulf %33, %38 : f32
            %40 = arith.addf %36, %39 : f32
            memref.store %40, %16[%35] : memref<24xf32>
          } {vectorize = array<i64: 4, 4>}
        } {unroll}
      }
      scf.for %41 = %6 to %7 step %8 {
        %42 = arith.muli %41, %9 : index
        scf.for %43 = %6 to %9 step %8 {
          %44 = arith.addi %42, %43 : index
          %45 = memref.load %5[%44] : memref<24xf32>
          %46 = memref.load %16[%44] : memref<24xf32>
          %47 = arith.addf %45, %46 : f32
          memref.store %47, %5[%44] : memref<24xf32>
        } {vectorize = array<i64: 4, 4>}
      } {unroll}
    }
    scf.for %48 = %6 to %7 step %8 {
      %49 = arith.muli %48, %9 : index
      scf.for %50 = %6 to %9 step %8 {
        %51 = arith.addi %49, %50 : index
        %52 = memref.load %5[%51] : memref<24xf32>
        %53 = memref.load %3[%50] : memref<8xf32>
        %54 = arith.addf %52, %53 : f32
        memref.store %54, %4[%51] : memref<24xf32>
      } {vectorize = array<i64: 4, 4>}
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">, #pg.bytes<"x2">] {
  ^bb0(%0: tensor<3x8xf32>, %1: tensor<8x8xf32>, %2: tensor<8xf32>):
    %3 = tile.launch @mulf_addf_24_f32_0 chunks 1 : i64 inplace [](%0, %1, %2) : (tensor<3x8xf32>, tensor<8x8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<3x8xf32>
  }
}
