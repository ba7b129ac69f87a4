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
  func.func private @mulf_addf_96_f32_0(%0: index, %1: memref<96xf32>, %2: memref<128xf32>, %3: memref<96xf32>) {
    %4 = arith.constant 0 : index
    %5 = arith.constant 2 : index
    %6 = arith.constant 1 : index
    %7 = memref.alloca() : memref<48xf32>
    %8 = arith.constant 8 : index
    %9 = arith.constant 0.000000e+00 : f32
    %10 = arith.constant 24 : index
    %11 = arith.constant 16 : index
    %12 = memref.alloca() : memref<16xf32>
    %13 = arith.constant 4 : index
    %14 = arith.constant 48 : index
    %15 = arith.constant 64 : index
    %16 = arith.constant 32 : index
    %17 = memref.alloca() : memref<8xf32>
    scf.for %18 = %4 to %5 step %6 {
      scf.for %19 = %4 to %5 step %6 {
        %20 = arith.muli %19, %10 : index
        scf.for %21 = %4 to %5 step %6 {
          %22 = arith.muli %21, %8 : index
          %23 = arith.addi %20, %22 : index
          scf.for %24 = %4 to %8 step %6 {
            %25 = arith.addi %23, %24 : index
            memref.store %9, %7[%25] : memref<48xf32>
          } {vectorize = array<i64: 4, 4>}
        }
        scf.for %26 = %4 to %8 step %6 {
          %27 = arith.addi %20, %26 : index
          %28 = arith.addi %27, %11 : index
          memref.store %9, %7[%28] : memref<48xf32>
        } {vectorize = array<i64: 4, 4>}
      }
      %29 = arith.muli %18, %15 : index
      scf.for %30 = %4 to %5 step %6 {
        %31 = arith.muli %30, %13 : index
        %32 = arith.muli %30, %16 : index
        %33 = arith.addi %29, %32 : index
        scf.for %34 = %4 to %5 step %6 {
          scf.for %35 = %4 to %5 step %6 {
            %36 = arith.muli %35, %8 : index
            scf.for %37 = %4 to %8 step %6 {
              %38 = arith.addi %36, %37 : index
              memref.store %9, %12[%38] : memref<16xf32>
            } {vectorize = array<i64: 4, 4>}
          } {unroll}
          %39 = arith.muli %34, %14 : index
          %40 = arith.addi %31, %39 : index
          scf.for %41 = %4 to %13 step %6 {
            %42 = arith.addi %40, %41 : index
            %43 = arith.muli %41, %8 : index
            %44 = arith.addi %33, %43 : index
            scf.for %45 = %4 to %5 step %6 {
              %46 = arith.muli %45, %8 : index
              %47 = arith.addi %42, %46 : index
              %48 = memref.load %1[%47] : memref<96xf32>
              scf.for %49 = %4 to %8 step %6 {
                %50 = arith.addi %46, %49 : index
                %51 = memref.load %12[%50] : memref<16xf32>
                %52 = arith.addi %44, %49 : index
                %53 = memref.load %2[%52] : memref<128xf32>
                %54 = arith.mulf %48, %53 : f32
                %55 = arith.addf %51, %54 : f32
                memref.store %55, %12[%50] : memref<16xf32>
              } {vectorize = array<i64: 4, 4>}
            } {unroll}
          }
          %56 = arith.muli %34, %10 : index
          scf.for %57 = %4 to %5 step %6 {
            %58 = arith.muli %57, %8 : index
            %59 = arith.addi %56, %58 : index
            scf.for %60 = %4 to %8 step %6 {
              %61 = arith.addi %59, %60 : index
              %62 = memref.load %7[%61] : memref<48xf32>
              %63 = arith.addi %58, %60 : index
              %64 = memref.load %12[%63] : memref<16xf32>
              %65 = arith.addf %62, %64 : f32
              memref.store %65, %7[%61] : memref<48xf32>
            } {vectorize = array<i64: 4, 4>}
          } {unroll}
          scf.for %66 = %4 to %8 step %6 {
            memref.store %9, %17[%66] : memref<8xf32>
          } {vectorize = array<i64: 4, 4>}
          scf.for %67 = %4 to %13 step %6 {
            %68 = arith.addi %40, %67 : index
            %69 = arith.addi %68, %11 : index
            %70 = memref.load %1[%69] : memref<96xf32>
            %71 = arith.muli %67, %8 : index
            %72 = arith.addi %33, %71 : index
            scf.for %73 = %4 to %8 step %6 {
              %74 = memref.load %17[%73] : memref<8xf32>
              %75 = arith.addi %72, %73 : index
              %76 = memref.load %2[%75] : memref<128xf32>
              %77 = arith.mulf %70, %76 : f32
              %78 = arith.addf %74, %77 : f32
              memref.store %78, %17[%73] : memref<8xf32>
            } {vectorize = array<i64: 4, 4>}
          }
          scf.for %79 = %4 to %8 step %6 {
            %80 = arith.addi %56, %79 : index
            %81 = arith.addi %80, %11 : index
            %82 = memref.load %7[%81] : memref<48xf32>
            %83 = memref.load %17[%79] : memref<8xf32>
            %84 = arith.addf %82, %83 : f32
            memref.store %84, %7[%81] : memref<48xf32>
          } {vectorize = array<i64: 4, 4>}
        }
      }
      %85 = arith.muli %18, %8 : index
      scf.for %86 = %4 to %5 step %6 {
        %87 = arith.muli %86, %10 : index
        %88 = arith.muli %86, %14 : index
        %89 = arith.addi %85, %88 : index
        scf.for %90 = %4 to %5 step %6 {
          %91 = arith.muli %90, %8 : index
          %92 = arith.addi %87, %91 : index
          %93 = arith.muli %90, %11 : index
          %94 = arith.addi %89, %93 : index
          scf.for %95 = %4 to %8 step %6 {
            %96 = arith.addi %92, %95 : index
            %97 = memref.load %7[%96] : memref<48xf32>
            %98 = arith.addi %94, %95 : index
            memref.store %97, %3[%98] : memref<96xf32>
          } {vectorize = array<i64: 4, 4>}
        }
        scf.for %99 = %4 to %8 step %6 {
          %100 = arith.addi %87, %99 : index
          %101 = arith.addi %100, %11 : index
          %102 = memref.load %7[%101] : memref<48xf32>
          %103 = arith.addi %89, %99 : index
          %104 = arith.addi %103, %16 : index
          memref.store %102, %3[%104] : memref<96xf32>
        } {vectorize = array<i64: 4, 4>}
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
