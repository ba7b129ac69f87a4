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
          %35 = arith.muli %34, %14 : index
          %36 = arith.addi %31, %35 : index
          scf.for %37 = %4 to %5 step %6 {
            %38 = arith.muli %37, %8 : index
            %39 = arith.addi %36, %38 : index
            scf.for %40 = %4 to %8 step %6 {
              %41 = arith.addi %38, %40 : index
              memref.store %9, %12[%41] : memref<16xf32>
              %42 = arith.addi %33, %40 : index
              scf.for %43 = %4 to %13 step %6 {
                %44 = arith.addi %39, %43 : index
                %45 = memref.load %1[%44] : memref<96xf32>
                %46 = arith.muli %43, %8 : index
                %47 = arith.addi %42, %46 : index
                %48 = memref.load %2[%47] : memref<128xf32>
                %49 = memref.load %12[%41] : memref<16xf32>
                %50 = arith.mulf %45, %48 : f32
                %51 = arith.addf %49, %50 : f32
                memref.store %51, %12[%41] : memref<16xf32>
              }
            } {interchange, vectorize = array<i64: 4, 4>}
          } {unroll, interchange}
          %52 = arith.muli %34, %10 : index
          scf.for %53 = %4 to %5 step %6 {
            %54 = arith.muli %53, %8 : index
            %55 = arith.addi %52, %54 : index
            scf.for %56 = %4 to %8 step %6 {
              %57 = arith.addi %55, %56 : index
              %58 = memref.load %7[%57] : memref<48xf32>
              %59 = arith.addi %54, %56 : index
              %60 = memref.load %12[%59] : memref<16xf32>
              %61 = arith.addf %58, %60 : f32
              memref.store %61, %7[%57] : memref<48xf32>
            } {vectorize = array<i64: 4, 4>}
          } {unroll}
          scf.for %62 = %4 to %8 step %6 {
            memref.store %9, %17[%62] : memref<8xf32>
            %63 = arith.addi %33, %62 : index
            scf.for %64 = %4 to %13 step %6 {
              %65 = arith.addi %36, %64 : index
              %66 = arith.addi %65, %11 : index
              %67 = memref.load %1[%66] : memref<96xf32>
              %68 = arith.muli %64, %8 : index
              %69 = arith.addi %63, %68 : index
              %70 = memref.load %2[%69] : memref<128xf32>
              %71 = memref.load %17[%62] : memref<8xf32>
              %72 = arith.mulf %67, %70 : f32
              %73 = arith.addf %71, %72 : f32
              memref.store %73, %17[%62] : memref<8xf32>
            }
          } {interchange, vectorize = array<i64: 4, 4>}
          scf.for %74 = %4 to %8 step %6 {
            %75 = arith.addi %52, %74 : index
            %76 = arith.addi %75, %11 : index
            %77 = memref.load %7[%76] : memref<48xf32>
            %78 = memref.load %17[%74] : memref<8xf32>
            %79 = arith.addf %77, %78 : f32
            memref.store %79, %7[%76] : memref<48xf32>
          } {vectorize = array<i64: 4, 4>}
        }
      }
      %80 = arith.muli %18, %8 : index
      scf.for %81 = %4 to %5 step %6 {
        %82 = arith.muli %81, %10 : index
        %83 = arith.muli %81, %14 : index
        %84 = arith.addi %80, %83 : index
        scf.for %85 = %4 to %5 step %6 {
          %86 = arith.muli %85, %8 : index
          %87 = arith.addi %82, %86 : index
          %88 = arith.muli %85, %11 : index
          %89 = arith.addi %84, %88 : index
          scf.for %90 = %4 to %8 step %6 {
            %91 = arith.addi %87, %90 : index
            %92 = memref.load %7[%91] : memref<48xf32>
            %93 = arith.addi %89, %90 : index
            memref.store %92, %3[%93] : memref<96xf32>
          } {vectorize = array<i64: 4, 4>}
        }
        scf.for %94 = %4 to %8 step %6 {
          %95 = arith.addi %82, %94 : index
          %96 = arith.addi %95, %11 : index
          %97 = memref.load %7[%96] : memref<48xf32>
          %98 = arith.addi %84, %94 : index
          %99 = arith.addi %98, %16 : index
          memref.store %97, %3[%99] : memref<96xf32>
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
