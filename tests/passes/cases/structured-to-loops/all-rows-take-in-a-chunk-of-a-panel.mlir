// All rows take in one chunk of a panel before the next one comes, also those that stand apart.
// -p structured-to-loops{vector-bytes=16}
#map = affine_map<(d0, d1) -> ((d1 floordiv 8), d0, (d1 mod 8))>
#map1 = affine_map<(d0, d1, d2, d3) -> ((d0 * 2), d1, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
#layout = #tile.layout<#map, #pg.ints[2, 8, 8]>
!tensor = tensor<8x16xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<4x3x8xf32>, %1: tensor<8x16xf32>):
    %2 = tile.pack %1 : tensor<8x16xf32> -> !tensor
    %3 = tile.contract %0, %2 : tensor<4x3x8xf32>, !tensor domain [2, 3, 16, 8] parallel 3 : i64 maps [#map1, #map2]
        epilogue_maps [] schedule <n_dim 2, n_vectors 2, m_dim 1, mr 2, kc 4, lanes 4> epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<2x3x16xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<2x3x16xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<4x3x8xf32>, %1: tensor<8x16xf32>):
    %2 = tile.kernel chunks 1 : i64 inplace [] ins(%1 : tensor<8x16xf32>) {
    ^bb0(%3: index, %4: memref<128xf32>, %5: memref<128xf32>):
      %6 = arith.constant 0 : index
      %7 = arith.constant 2 : index
      %8 = arith.constant 1 : index
      %9 = arith.constant 8 : index
      %10 = arith.constant 4 : index
      %11 = arith.constant 16 : index
      %12 = arith.constant 64 : index
      scf.for %13 = %6 to %7 step %8 {
        %14 = arith.muli %13, %9 : index
        %15 = arith.muli %13, %12 : index
        scf.for %16 = %6 to %9 step %8 {
          %17 = arith.muli %16, %11 : index
          %18 = arith.addi %14, %17 : index
          %19 = arith.muli %16, %9 : index
          %20 = arith.addi %15, %19 : index
          scf.for %21 = %6 to %9 step %10 {
            %22 = arith.addi %18, %21 : index
            %23 = vector.load %4[%22] : memref<128xf32>, vector<4xf32>
            %24 = arith.addi %20, %21 : index
            vector.store %23, %5[%24] : memref<128xf32>, vector<4xf32>
          }
        }
      }
    } -> tensor<8x16xf32, #tile.layout<affine_map<(d0, d1) -> ((d1 floordiv 8), d0, (d1 mod 8))>, #pg.ints[2, 8, 8]>>
    %3 = tile.kernel chunks 1 : i64 inplace [] ins(%0, %2 : tensor<4x3x8xf32>, tensor<8x16xf32, #tile.layout<affine_map<(d0, d1) -> ((d1 floordiv 8), d0, (d1 mod 8))>, #pg.ints[2, 8, 8]>>) {
    ^bb0(%4: index, %5: memref<96xf32>, %6: memref<128xf32>, %7: memref<96xf32>):
      %8 = arith.constant 0 : index
      %9 = arith.constant 2 : index
      %10 = arith.constant 1 : index
      %11 = memref.alloca() : memref<48xf32>
      %12 = arith.constant 0.000000e+00 : f32
      %13 = vector.broadcast %12 : f32 to vector<4xf32>
      %14 = arith.constant 24 : index
      %15 = arith.constant 8 : index
      %16 = arith.constant 4 : index
      %17 = arith.constant 16 : index
      %18 = arith.constant 20 : index
      %19 = arith.constant 48 : index
      %20 = arith.constant 64 : index
      %21 = arith.constant 32 : index
      %22 = arith.constant 12 : index
      %23 = arith.constant 36 : index
      scf.for %24 = %8 to %9 step %10 {
        scf.for %25 = %8 to %9 step %10 {
          %26 = arith.muli %25, %14 : index
          scf.for %27 = %8 to %9 step %10 {
            %28 = arith.muli %27, %15 : index
            %29 = arith.addi %26, %28 : index
            vector.store %13, %11[%29] : memref<48xf32>, vector<4xf32>
            %30 = arith.addi %29, %16 : index
            vector.store %13, %11[%30] : memref<48xf32>, vector<4xf32>
          }
          %31 = arith.addi %26, %17 : index
          vector.store %13, %11[%31] : memref<48xf32>, vector<4xf32>
          %32 = arith.addi %26, %18 : index
          vector.store %13, %11[%32] : memref<48xf32>, vector<4xf32>
        }
        %33 = arith.muli %24, %20 : index
        scf.for %34 = %8 to %9 step %10 {
          %35 = arith.muli %34, %16 : index
          %36 = arith.muli %34, %21 : index
          %37 = arith.addi %33, %36 : index
          scf.for %38 = %8 to %9 step %10 {
            %39 = arith.muli %38, %19 : index
            %40 = arith.addi %35, %39 : index
            %41, %42, %43, %44 = scf.for %45 = %8 to %16 step %10 iter_args(%46 = %13, %47 = %13, %48 = %13, %49 = %13) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
              %50 = arith.addi %40, %45 : index
              %51 = memref.load %5[%50] : memref<96xf32>
              %52 = vector.broadcast %51 : f32 to vector<4xf32>
              %53 = arith.muli %45, %15 : index
              %54 = arith.addi %37, %53 : index
              %55 = vector.load %6[%54] : memref<128xf32>, vector<4xf32>
              %56 = vector.fma %52, %55, %46 : vector<4xf32>
              %57 = arith.addi %54, %16 : index
              %58 = vector.load %6[%57] : memref<128xf32>, vector<4xf32>
              %59 = vector.fma %52, %58, %47 : vector<4xf32>
              %60 = arith.addi %50, %15 : index
              %61 = memref.load %5[%60] : memref<96xf32>
              %62 = vector.broadcast %61 : f32 to vector<4xf32>
              %63 = vector.fma %62, %55, %48 : vector<4xf32>
              %64 = vector.fma %62, %58, %49 : vector<4xf32>
              scf.yield %56, %59, %63, %64 : vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>
            }
            %65 = arith.muli %38, %14 : index
            %66 = vector.load %11[%65] : memref<48xf32>, vector<4xf32>
            %67 = arith.addf %66, %41 : vector<4xf32>
            vector.store %67, %11[%65] : memref<48xf32>, vector<4xf32>
            %68 = arith.addi %65, %16 : index
            %69 = vector.load %11[%68] : memref<48xf32>, vector<4xf32>
            %70 = arith.addf %69, %42 : vector<4xf32>
            vector.store %70, %11[%68] : memref<48xf32>, vector<4xf32>
            %71 = arith.addi %65, %15 : index
            %72 = vector.load %11[%71] : memref<48xf32>, vector<4xf32>
            %73 = arith.addf %72, %43 : vector<4xf32>
            vector.store %73, %11[%71] : memref<48xf32>, vector<4xf32>
            %74 = arith.addi %65, %22 : index
            %75 = vector.load %11[%74] : memref<48xf32>, vector<4xf32>
            %76 = arith.addf %75, %44 : vector<4xf32>
            vector.store %76, %11[%74] : memref<48xf32>, vector<4xf32>
            %77, %78 = scf.for %79 = %8 to %16 step %10 iter_args(%80 = %13, %81 = %13) -> (vector<4xf32>, vector<4xf32>) {
              %82 = arith.addi %40, %79 : index
              %83 = arith.addi %82, %17 : index
              %84 = memref.load %5[%83] : memref<96xf32>
              %85 = vector.broadcast %84 : f32 to vector<4xf32>
              %86 = arith.muli %79, %15 : index
              %87 = arith.addi %37, %86 : index
              %88 = vector.load %6[%87] : memref<128xf32>, vector<4xf32>
              %89 = vector.fma %85, %88, %80 : vector<4xf32>
              %90 = arith.addi %87, %16 : index
              %91 = vector.load %6[%90] : memref<128xf32>, vector<4xf32>
              %92 = vector.fma %85, %91, %81 : vector<4xf32>
              scf.yield %89, %92 : vector<4xf32>, vector<4xf32>
            }
            %93 = arith.addi %65, %17 : index
            %94 = vector.load %11[%93] : memref<48xf32>, vector<4xf32>
            %95 = arith.addf %94, %77 : vector<4xf32>
            vector.store %95, %11[%93] : memref<48xf32>, vector<4xf32>
            %96 = arith.addi %65, %18 : index
            %97 = vector.load %11[%96] : memref<48xf32>, vector<4xf32>
            %98 = arith.addf %97, %78 : vector<4xf32>
            vector.store %98, %11[%96] : memref<48xf32>, vector<4xf32>
          }
        }
        %99 = arith.muli %24, %15 : index
        scf.for %100 = %8 to %9 step %10 {
          %101 = arith.muli %100, %14 : index
          %102 = arith.muli %100, %19 : index
          %103 = arith.addi %99, %102 : index
          scf.for %104 = %8 to %9 step %10 {
            %105 = arith.muli %104, %15 : index
            %106 = arith.addi %101, %105 : index
            %107 = vector.load %11[%106] : memref<48xf32>, vector<4xf32>
            %108 = arith.addi %106, %16 : index
            %109 = vector.load %11[%108] : memref<48xf32>, vector<4xf32>
            %110 = arith.muli %104, %17 : index
            %111 = arith.addi %103, %110 : index
            vector.store %107, %7[%111] : memref<96xf32>, vector<4xf32>
            %112 = arith.addi %111, %16 : index
            vector.store %109, %7[%112] : memref<96xf32>, vector<4xf32>
          }
          %113 = arith.addi %101, %17 : index
          %114 = vector.load %11[%113] : memref<48xf32>, vector<4xf32>
          %115 = arith.addi %101, %18 : index
          %116 = vector.load %11[%115] : memref<48xf32>, vector<4xf32>
          %117 = arith.addi %103, %21 : index
          vector.store %114, %7[%117] : memref<96xf32>, vector<4xf32>
          %118 = arith.addi %103, %23 : index
          vector.store %116, %7[%118] : memref<96xf32>, vector<4xf32>
        }
      }
    } -> tensor<2x3x16xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<2x3x16xf32>
  }
}
