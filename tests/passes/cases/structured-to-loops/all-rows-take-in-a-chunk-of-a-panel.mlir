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
    %3 = tile.reduce ins(%0, %2 : tensor<4x3x8xf32>, !tensor) domain [2, 3, 16, 8] parallel 3 : i64 maps [#map1, #map2]
        epilogue_maps [] product f32 schedule <n_dim 2, n_vectors 2, m_dim 1, mr 2, kc 4, lanes 4> epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<2x3x16xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<2x3x16xf32>
  }
}
// -----
#map = affine_map<(d0, d1) -> ((d1 floordiv 8), d0, (d1 mod 8))>
builtin.module {
  func.func private @move_128_f32_0(%0: index, %1: memref<128xf32>, %2: memref<128xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 2 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 8 : index
    %7 = arith.constant 4 : index
    %8 = arith.constant 16 : index
    %9 = arith.constant 64 : index
    scf.for %10 = %3 to %4 step %5 {
      %11 = arith.muli %10, %6 : index
      %12 = arith.muli %10, %9 : index
      scf.for %13 = %3 to %6 step %5 {
        %14 = arith.muli %13, %8 : index
        %15 = arith.addi %11, %14 : index
        %16 = arith.muli %13, %6 : index
        %17 = arith.addi %12, %16 : index
        scf.for %18 = %3 to %6 step %7 {
          %19 = arith.addi %15, %18 : index
          %20 = vector.load %1[%19] : memref<128xf32>, vector<4xf32>
          %21 = arith.addi %17, %18 : index
          vector.store %20, %2[%21] : memref<128xf32>, vector<4xf32>
        }
      }
    }
    func.return
  }
  func.func private @fma_addf_96_f32_0(%0: index, %1: memref<96xf32>, %2: memref<128xf32>, %3: memref<96xf32>) {
    %4 = arith.constant 0 : index
    %5 = arith.constant 2 : index
    %6 = arith.constant 1 : index
    %7 = memref.alloca() : memref<48xf32>
    %8 = arith.constant 0.000000e+00 : f32
    %9 = vector.broadcast %8 : f32 to vector<4xf32>
    %10 = arith.constant 24 : index
    %11 = arith.constant 8 : index
    %12 = arith.constant 4 : index
    %13 = arith.constant 16 : index
    %14 = arith.constant 20 : index
    %15 = arith.constant 48 : index
    %16 = arith.constant 64 : index
    %17 = arith.constant 32 : index
    %18 = arith.constant 12 : index
    %19 = arith.constant 36 : index
    scf.for %20 = %4 to %5 step %6 {
      scf.for %21 = %4 to %5 step %6 {
        %22 = arith.muli %21, %10 : index
        scf.for %23 = %4 to %5 step %6 {
          %24 = arith.muli %23, %11 : index
          %25 = arith.addi %22, %24 : index
          vector.store %9, %7[%25] : memref<48xf32>, vector<4xf32>
          %26 = arith.addi %25, %12 : index
          vector.store %9, %7[%26] : memref<48xf32>, vector<4xf32>
        }
        %27 = arith.addi %22, %13 : index
        vector.store %9, %7[%27] : memref<48xf32>, vector<4xf32>
        %28 = arith.addi %22, %14 : index
        vector.store %9, %7[%28] : memref<48xf32>, vector<4xf32>
      }
      %29 = arith.muli %20, %16 : index
      scf.for %30 = %4 to %5 step %6 {
        %31 = arith.muli %30, %12 : index
        %32 = arith.muli %30, %17 : index
        %33 = arith.addi %29, %32 : index
        scf.for %34 = %4 to %5 step %6 {
          %35 = arith.muli %34, %15 : index
          %36 = arith.addi %31, %35 : index
          %37, %38, %39, %40 = scf.for %41 = %4 to %12 step %6 iter_args(%42 = %9, %43 = %9, %44 = %9, %45 = %9) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
            %46 = arith.addi %36, %41 : index
            %47 = memref.load %1[%46] : memref<96xf32>
            %48 = vector.broadcast %47 : f32 to vector<4xf32>
            %49 = arith.muli %41, %11 : index
            %50 = arith.addi %33, %49 : index
            %51 = vector.load %2[%50] : memref<128xf32>, vector<4xf32>
            %52 = vector.fma %48, %51, %42 : vector<4xf32>
            %53 = arith.addi %50, %12 : index
            %54 = vector.load %2[%53] : memref<128xf32>, vector<4xf32>
            %55 = vector.fma %48, %54, %43 : vector<4xf32>
            %56 = arith.addi %46, %11 : index
            %57 = memref.load %1[%56] : memref<96xf32>
            %58 = vector.broadcast %57 : f32 to vector<4xf32>
            %59 = vector.fma %58, %51, %44 : vector<4xf32>
            %60 = vector.fma %58, %54, %45 : vector<4xf32>
            scf.yield %52, %55, %59, %60 : vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>
          }
          %61 = arith.muli %34, %10 : index
          %62 = vector.load %7[%61] : memref<48xf32>, vector<4xf32>
          %63 = arith.addf %62, %37 : vector<4xf32>
          vector.store %63, %7[%61] : memref<48xf32>, vector<4xf32>
          %64 = arith.addi %61, %12 : index
          %65 = vector.load %7[%64] : memref<48xf32>, vector<4xf32>
          %66 = arith.addf %65, %38 : vector<4xf32>
          vector.store %66, %7[%64] : memref<48xf32>, vector<4xf32>
          %67 = arith.addi %61, %11 : index
          %68 = vector.load %7[%67] : memref<48xf32>, vector<4xf32>
          %69 = arith.addf %68, %39 : vector<4xf32>
          vector.store %69, %7[%67] : memref<48xf32>, vector<4xf32>
          %70 = arith.addi %61, %18 : index
          %71 = vector.load %7[%70] : memref<48xf32>, vector<4xf32>
          %72 = arith.addf %71, %40 : vector<4xf32>
          vector.store %72, %7[%70] : memref<48xf32>, vector<4xf32>
          %73, %74 = scf.for %75 = %4 to %12 step %6 iter_args(%76 = %9, %77 = %9) -> (vector<4xf32>, vector<4xf32>) {
            %78 = arith.addi %36, %75 : index
            %79 = arith.addi %78, %13 : index
            %80 = memref.load %1[%79] : memref<96xf32>
            %81 = vector.broadcast %80 : f32 to vector<4xf32>
            %82 = arith.muli %75, %11 : index
            %83 = arith.addi %33, %82 : index
            %84 = vector.load %2[%83] : memref<128xf32>, vector<4xf32>
            %85 = vector.fma %81, %84, %76 : vector<4xf32>
            %86 = arith.addi %83, %12 : index
            %87 = vector.load %2[%86] : memref<128xf32>, vector<4xf32>
            %88 = vector.fma %81, %87, %77 : vector<4xf32>
            scf.yield %85, %88 : vector<4xf32>, vector<4xf32>
          }
          %89 = arith.addi %61, %13 : index
          %90 = vector.load %7[%89] : memref<48xf32>, vector<4xf32>
          %91 = arith.addf %90, %73 : vector<4xf32>
          vector.store %91, %7[%89] : memref<48xf32>, vector<4xf32>
          %92 = arith.addi %61, %14 : index
          %93 = vector.load %7[%92] : memref<48xf32>, vector<4xf32>
          %94 = arith.addf %93, %74 : vector<4xf32>
          vector.store %94, %7[%92] : memref<48xf32>, vector<4xf32>
        }
      }
      %95 = arith.muli %20, %11 : index
      scf.for %96 = %4 to %5 step %6 {
        %97 = arith.muli %96, %10 : index
        %98 = arith.muli %96, %15 : index
        %99 = arith.addi %95, %98 : index
        scf.for %100 = %4 to %5 step %6 {
          %101 = arith.muli %100, %11 : index
          %102 = arith.addi %97, %101 : index
          %103 = vector.load %7[%102] : memref<48xf32>, vector<4xf32>
          %104 = arith.addi %102, %12 : index
          %105 = vector.load %7[%104] : memref<48xf32>, vector<4xf32>
          %106 = arith.muli %100, %13 : index
          %107 = arith.addi %99, %106 : index
          vector.store %103, %3[%107] : memref<96xf32>, vector<4xf32>
          %108 = arith.addi %107, %12 : index
          vector.store %105, %3[%108] : memref<96xf32>, vector<4xf32>
        }
        %109 = arith.addi %97, %13 : index
        %110 = vector.load %7[%109] : memref<48xf32>, vector<4xf32>
        %111 = arith.addi %97, %14 : index
        %112 = vector.load %7[%111] : memref<48xf32>, vector<4xf32>
        %113 = arith.addi %99, %17 : index
        vector.store %110, %3[%113] : memref<96xf32>, vector<4xf32>
        %114 = arith.addi %99, %19 : index
        vector.store %112, %3[%114] : memref<96xf32>, vector<4xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<4x3x8xf32>, %1: tensor<8x16xf32>):
    %2 = tile.launch @move_128_f32_0 chunks 1 : i64 inplace [](%1) : (tensor<8x16xf32>) -> tensor<8x16xf32, #tile.layout<#map, #pg.ints[2, 8, 8]>>
    %3 = tile.launch @fma_addf_96_f32_0 chunks 1 : i64 inplace [](%0, %2) : (tensor<4x3x8xf32>, tensor<8x16xf32, #tile.layout<#map, #pg.ints[2, 8, 8]>>) -> tensor<2x3x16xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<2x3x16xf32>
  }
}
