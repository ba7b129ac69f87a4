// Without a schedule a product is plain loops, with vectors along its rows.
// -p structured-to-loops{vector-bytes=16}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<3x4xf32>>
    %2 = tile.contract %0, %1 : tensor<4x3xf32>, tensor<3x4xf32> domain [4, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<4x4xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<4x4xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<3x4xf32>>
    %2 = tile.kernel chunks 1 : i64 inplace [] ins(%0, %1 : tensor<4x3xf32>, tensor<3x4xf32>) {
    ^bb0(%3: index, %4: memref<12xf32>, %5: memref<12xf32>, %6: memref<16xf32>):
      %7 = arith.constant 0 : index
      %8 = arith.constant 4 : index
      %9 = arith.constant 1 : index
      %10 = arith.constant 0.000000e+00 : f32
      %11 = vector.broadcast %10 : f32 to vector<4xf32>
      %12 = arith.constant 3 : index
      scf.for %13 = %7 to %8 step %9 {
        %14 = arith.muli %13, %12 : index
        %15 = scf.for %16 = %7 to %12 step %9 iter_args(%17 = %11) -> (vector<4xf32>) {
          %18 = arith.addi %14, %16 : index
          %19 = memref.load %4[%18] : memref<12xf32>
          %20 = arith.muli %16, %8 : index
          %21 = vector.load %5[%20] : memref<12xf32>, vector<4xf32>
          %22 = vector.broadcast %19 : f32 to vector<4xf32>
          %23 = arith.mulf %22, %21 : vector<4xf32>
          %24 = arith.addf %17, %23 : vector<4xf32>
          scf.yield %24 : vector<4xf32>
        }
        %25 = arith.muli %13, %8 : index
        vector.store %15, %6[%25] : memref<16xf32>, vector<4xf32>
      }
    } -> tensor<4x4xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<4x4xf32>
  }
}
