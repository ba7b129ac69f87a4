// Without a schedule, a matmul is plain loops, with vectors along its rows.
// -p structured-to-loops{vector-bytes=16}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<3x4xf32>>
    %2 = tile.reduce ins(%0, %1 : tensor<4x3xf32>, tensor<3x4xf32>) domain [4, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<4x4xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<4x4xf32>
  }
}
// -----
builtin.module {
  func.func private @mulf_addf_16_f32_0(%0: index, %1: memref<12xf32>, %2: memref<12xf32>, %3: memref<16xf32>) {
    %4 = arith.constant 0 : index
    %5 = arith.constant 4 : index
    %6 = arith.constant 1 : index
    %7 = arith.constant 0.000000e+00 : f32
    %8 = vector.broadcast %7 : f32 to vector<4xf32>
    %9 = arith.constant 3 : index
    scf.for %10 = %4 to %5 step %6 {
      %11 = arith.muli %10, %9 : index
      %12 = scf.for %13 = %4 to %9 step %6 iter_args(%14 = %8) -> (vector<4xf32>) {
        %15 = arith.addi %11, %13 : index
        %16 = memref.load %1[%15] : memref<12xf32>
        %17 = arith.muli %13, %5 : index
        %18 = vector.load %2[%17] : memref<12xf32>, vector<4xf32>
        %19 = vector.broadcast %16 : f32 to vector<4xf32>
        %20 = arith.mulf %19, %18 : vector<4xf32>
        %21 = arith.addf %14, %20 : vector<4xf32>
        scf.yield %21 : vector<4xf32>
      }
      %22 = arith.muli %10, %5 : index
      vector.store %12, %3[%22] : memref<16xf32>, vector<4xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4x3xf32>):
    %1 = pg.constant #pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<3x4xf32>>
    %2 = tile.launch @mulf_addf_16_f32_0 chunks 1 : i64 inplace [](%0, %1) : (tensor<4x3xf32>, tensor<3x4xf32>) -> tensor<4x4xf32>
    pg.return [#pg.bytes<"v0">], %2 : tensor<4x4xf32>
  }
}
