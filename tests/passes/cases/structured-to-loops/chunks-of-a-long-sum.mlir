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
      %20 = arith.muli %19, %17 : index
      %21 = arith.muli %19, %18 : index
      scf.for %22 = %6 to %7 step %8 {
        %23 = arith.muli %22, %9 : index
        %24 = arith.addi %20, %23 : index
        scf.for %25 = %6 to %9 step %8 {
          %26 = arith.addi %23, %25 : index
          memref.store %10, %16[%26] : memref<24xf32>
          %27 = arith.addi %21, %25 : index
          scf.for %28 = %6 to %17 step %8 {
            %29 = arith.addi %24, %28 : index
            %30 = memref.load %1[%29] : memref<24xf32>
            %31 = arith.muli %28, %9 : index
            %32 = arith.addi %27, %31 : index
            %33 = memref.load %2[%32] : memref<64xf32>
            %34 = memref.load %16[%26] : memref<24xf32>
            %35 = arith.mulf %30, %33 : f32
            %36 = arith.addf %34, %35 : f32
            memref.store %36, %16[%26] : memref<24xf32>
          }
        } {interchange, vectorize = array<i64: 4, 4>}
      } {unroll, interchange}
      scf.for %37 = %6 to %7 step %8 {
        %38 = arith.muli %37, %9 : index
        scf.for %39 = %6 to %9 step %8 {
          %40 = arith.addi %38, %39 : index
          %41 = memref.load %5[%40] : memref<24xf32>
          %42 = memref.load %16[%40] : memref<24xf32>
          %43 = arith.addf %41, %42 : f32
          memref.store %43, %5[%40] : memref<24xf32>
        } {vectorize = array<i64: 4, 4>}
      } {unroll}
    }
    scf.for %44 = %6 to %7 step %8 {
      %45 = arith.muli %44, %9 : index
      scf.for %46 = %6 to %9 step %8 {
        %47 = arith.addi %45, %46 : index
        %48 = memref.load %5[%47] : memref<24xf32>
        %49 = memref.load %3[%46] : memref<8xf32>
        %50 = arith.addf %48, %49 : f32
        memref.store %50, %4[%47] : memref<24xf32>
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
