// All rows accumulate one chunk of a panel before the next one, also rows with a stride.
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
    %8 = arith.constant 8 : index
    %9 = arith.constant 4 : index
    %10 = arith.constant 0.000000e+00 : f32
    %11 = vector.broadcast %10 : f32 to vector<4xf32>
    %12 = arith.constant 24 : index
    %13 = arith.constant 16 : index
    %14 = memref.alloca() : memref<16xf32>
    %15 = arith.constant 48 : index
    %16 = arith.constant 64 : index
    %17 = arith.constant 32 : index
    %18 = memref.alloca() : memref<8xf32>
    scf.for %19 = %4 to %5 step %6 {
      scf.for %20 = %4 to %5 step %6 {
        %21 = arith.muli %20, %12 : index
        scf.for %22 = %4 to %5 step %6 {
          %23 = arith.muli %22, %8 : index
          %24 = arith.addi %21, %23 : index
          scf.for %25 = %4 to %8 step %9 {
            %26 = arith.addi %24, %25 : index
            vector.store %11, %7[%26] : memref<48xf32>, vector<4xf32>
          } {unroll}
        }
        scf.for %27 = %4 to %8 step %9 {
          %28 = arith.addi %21, %27 : index
          %29 = arith.addi %28, %13 : index
          vector.store %11, %7[%29] : memref<48xf32>, vector<4xf32>
        } {unroll}
      }
      %30 = arith.muli %19, %16 : index
      scf.for %31 = %4 to %5 step %6 {
        %32 = arith.muli %31, %9 : index
        %33 = arith.muli %31, %17 : index
        %34 = arith.addi %30, %33 : index
        scf.for %35 = %4 to %5 step %6 {
          scf.for %36 = %4 to %5 step %6 {
            %37 = arith.muli %36, %8 : index
            scf.for %38 = %4 to %8 step %9 {
              %39 = arith.addi %37, %38 : index
              vector.store %11, %14[%39] : memref<16xf32>, vector<4xf32>
            } {unroll}
          } {unroll}
          %40 = arith.muli %35, %15 : index
          %41 = arith.addi %32, %40 : index
          scf.for %42 = %4 to %9 step %6 {
            %43 = arith.addi %41, %42 : index
            %44 = arith.muli %42, %8 : index
            %45 = arith.addi %34, %44 : index
            scf.for %46 = %4 to %5 step %6 {
              %47 = arith.muli %46, %8 : index
              %48 = arith.addi %43, %47 : index
              %49 = memref.load %1[%48] : memref<96xf32>
              %50 = vector.broadcast %49 : f32 to vector<4xf32>
              scf.for %51 = %4 to %8 step %9 {
                %52 = arith.addi %47, %51 : index
                %53 = vector.load %14[%52] : memref<16xf32>, vector<4xf32>
                %54 = arith.addi %45, %51 : index
                %55 = vector.load %2[%54] : memref<128xf32>, vector<4xf32>
                %56 = vector.fma %50, %55, %53 : vector<4xf32>
                vector.store %56, %14[%52] : memref<16xf32>, vector<4xf32>
              } {unroll}
            } {unroll}
          }
          %57 = arith.muli %35, %12 : index
          scf.for %58 = %4 to %5 step %6 {
            %59 = arith.muli %58, %8 : index
            %60 = arith.addi %57, %59 : index
            scf.for %61 = %4 to %8 step %9 {
              %62 = arith.addi %60, %61 : index
              %63 = vector.load %7[%62] : memref<48xf32>, vector<4xf32>
              %64 = arith.addi %59, %61 : index
              %65 = vector.load %14[%64] : memref<16xf32>, vector<4xf32>
              %66 = arith.addf %63, %65 : vector<4xf32>
              vector.store %66, %7[%62] : memref<48xf32>, vector<4xf32>
            } {unroll}
          } {unroll}
          scf.for %67 = %4 to %8 step %9 {
            vector.store %11, %18[%67] : memref<8xf32>, vector<4xf32>
          } {unroll}
          scf.for %68 = %4 to %9 step %6 {
            %69 = arith.addi %41, %68 : index
            %70 = arith.addi %69, %13 : index
            %71 = memref.load %1[%70] : memref<96xf32>
            %72 = vector.broadcast %71 : f32 to vector<4xf32>
            %73 = arith.muli %68, %8 : index
            %74 = arith.addi %34, %73 : index
            scf.for %75 = %4 to %8 step %9 {
              %76 = vector.load %18[%75] : memref<8xf32>, vector<4xf32>
              %77 = arith.addi %74, %75 : index
              %78 = vector.load %2[%77] : memref<128xf32>, vector<4xf32>
              %79 = vector.fma %72, %78, %76 : vector<4xf32>
              vector.store %79, %18[%75] : memref<8xf32>, vector<4xf32>
            } {unroll}
          }
          scf.for %80 = %4 to %8 step %9 {
            %81 = arith.addi %57, %80 : index
            %82 = arith.addi %81, %13 : index
            %83 = vector.load %7[%82] : memref<48xf32>, vector<4xf32>
            %84 = vector.load %18[%80] : memref<8xf32>, vector<4xf32>
            %85 = arith.addf %83, %84 : vector<4xf32>
            vector.store %85, %7[%82] : memref<48xf32>, vector<4xf32>
          } {unroll}
        }
      }
      %86 = arith.muli %19, %8 : index
      scf.for %87 = %4 to %5 step %6 {
        %88 = arith.muli %87, %12 : index
        %89 = arith.muli %87, %15 : index
        %90 = arith.addi %86, %89 : index
        scf.for %91 = %4 to %5 step %6 {
          %92 = arith.muli %91, %8 : index
          %93 = arith.addi %88, %92 : index
          %94 = arith.muli %91, %13 : index
          %95 = arith.addi %90, %94 : index
          scf.for %96 = %4 to %8 step %9 {
            %97 = arith.addi %93, %96 : index
            %98 = vector.load %7[%97] : memref<48xf32>, vector<4xf32>
            %99 = arith.addi %95, %96 : index
            vector.store %98, %3[%99] : memref<96xf32>, vector<4xf32>
          } {unroll}
        }
        scf.for %100 = %4 to %8 step %9 {
          %101 = arith.addi %88, %100 : index
          %102 = arith.addi %101, %13 : index
          %103 = vector.load %7[%102] : memref<48xf32>, vector<4xf32>
          %104 = arith.addi %90, %100 : index
          %105 = arith.addi %104, %17 : index
          vector.store %103, %3[%105] : memref<96xf32>, vector<4xf32>
        } {unroll}
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
