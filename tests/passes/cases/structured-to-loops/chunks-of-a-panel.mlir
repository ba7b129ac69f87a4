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
  func.func private @mulf_addf_96_f32_0(%0: index, %1: memref<96xf32>, %2: memref<128xf32>, %3: memref<96xf32>) {
    %4 = arith.constant 0 : index
    %5 = arith.constant 2 : index
    %6 = arith.constant 1 : index
    %7 = memref.alloca() : memref<48xf32>
    %8 = arith.constant 3 : index
    %9 = arith.constant 8 : index
    %10 = arith.constant 0.000000e+00 : f32
    %11 = arith.constant 24 : index
    %12 = arith.constant 4 : index
    %13 = arith.constant 48 : index
    %14 = arith.constant 64 : index
    %15 = arith.constant 32 : index
    %16 = arith.constant 16 : index
    scf.for %17 = %4 to %5 step %6 {
      scf.for %18 = %4 to %5 step %6 {
        %19 = arith.muli %18, %11 : index
        scf.for %20 = %4 to %8 step %5 {
          %21 = arith.subi %8, %20 : index
          %22 = arith.minsi %5, %21 : index
          %23 = arith.muli %20, %9 : index
          %24 = arith.addi %19, %23 : index
          scf.for %25 = %4 to %22 step %6 {
            %26 = arith.muli %25, %9 : index
            %27 = arith.addi %24, %26 : index
            scf.for %28 = %4 to %9 step %6 {
              %29 = arith.addi %27, %28 : index
              memref.store %10, %7[%29] : memref<48xf32>
            } {vectorize = array<i64: 4, 4>}
          }
        } {split}
      }
      %30 = arith.muli %17, %14 : index
      scf.for %31 = %4 to %5 step %6 {
        %32 = arith.muli %31, %12 : index
        %33 = arith.muli %31, %15 : index
        %34 = arith.addi %30, %33 : index
        scf.for %35 = %4 to %5 step %6 {
          %36 = arith.muli %35, %13 : index
          %37 = arith.addi %32, %36 : index
          %38 = arith.muli %35, %11 : index
          scf.for %39 = %4 to %8 step %5 {
            %40 = arith.subi %8, %39 : index
            %41 = arith.minsi %5, %40 : index
            %42 = memref.alloca() : memref<16xf32>
            %43 = arith.muli %39, %9 : index
            %44 = arith.addi %37, %43 : index
            scf.for %45 = %4 to %41 step %6 {
              %46 = arith.muli %45, %9 : index
              %47 = arith.addi %44, %46 : index
              scf.for %48 = %4 to %9 step %6 {
                %49 = arith.addi %46, %48 : index
                memref.store %10, %42[%49] : memref<16xf32>
                %50 = arith.addi %34, %48 : index
                scf.for %51 = %4 to %12 step %6 {
                  %52 = arith.addi %47, %51 : index
                  %53 = memref.load %1[%52] : memref<96xf32>
                  %54 = arith.muli %51, %9 : index
                  %55 = arith.addi %50, %54 : index
                  %56 = memref.load %2[%55] : memref<128xf32>
                  %57 = memref.load %42[%49] : memref<16xf32>
                  %58 = arith.mulf %53, %56 : f32
                  %59 = arith.addf %57, %58 : f32
                  memref.store %59, %42[%49] : memref<16xf32>
                }
              } {interchange, vectorize = array<i64: 4, 4>}
            } {unroll, interchange}
            %60 = arith.addi %38, %43 : index
            scf.for %61 = %4 to %41 step %6 {
              %62 = arith.muli %61, %9 : index
              %63 = arith.addi %60, %62 : index
              scf.for %64 = %4 to %9 step %6 {
                %65 = arith.addi %63, %64 : index
                %66 = memref.load %7[%65] : memref<48xf32>
                %67 = arith.addi %62, %64 : index
                %68 = memref.load %42[%67] : memref<16xf32>
                %69 = arith.addf %66, %68 : f32
                memref.store %69, %7[%65] : memref<48xf32>
              } {vectorize = array<i64: 4, 4>}
            } {unroll}
          } {split}
        }
      }
      %70 = arith.muli %17, %9 : index
      scf.for %71 = %4 to %5 step %6 {
        %72 = arith.muli %71, %11 : index
        %73 = arith.muli %71, %13 : index
        %74 = arith.addi %70, %73 : index
        scf.for %75 = %4 to %8 step %5 {
          %76 = arith.subi %8, %75 : index
          %77 = arith.minsi %5, %76 : index
          %78 = arith.muli %75, %9 : index
          %79 = arith.addi %72, %78 : index
          %80 = arith.muli %75, %16 : index
          %81 = arith.addi %74, %80 : index
          scf.for %82 = %4 to %77 step %6 {
            %83 = arith.muli %82, %9 : index
            %84 = arith.addi %79, %83 : index
            %85 = arith.muli %82, %16 : index
            %86 = arith.addi %81, %85 : index
            scf.for %87 = %4 to %9 step %6 {
              %88 = arith.addi %84, %87 : index
              %89 = memref.load %7[%88] : memref<48xf32>
              %90 = arith.addi %86, %87 : index
              memref.store %89, %3[%90] : memref<96xf32>
            } {vectorize = array<i64: 4, 4>}
          }
        } {split}
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<4x3x8xf32>, %1: tensor<8x16xf32>):
    %2 = tile.launch @move_128_f32_0 chunks 1 : i64 inplace [](%1) : (tensor<8x16xf32>) -> tensor<8x16xf32, #tile.layout<#map, #pg.ints[2, 8, 8]>>
    %3 = tile.launch @mulf_addf_96_f32_0 chunks 1 : i64 inplace [](%0, %2) : (tensor<4x3x8xf32>, tensor<8x16xf32, #tile.layout<#map, #pg.ints[2, 8, 8]>>) -> tensor<2x3x16xf32>
    pg.return [#pg.bytes<"v0">], %3 : tensor<2x3x16xf32>
  }
}
