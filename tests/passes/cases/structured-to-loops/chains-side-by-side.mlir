// A long chain of instructions is computed for several vectors side by side, stored after all loads.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<50xf32>):
    %1 = tile.map ins(%0 : tensor<50xf32>) domain [50] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%2: f32):
      %3 = math.erf %2 : f32
      %4 = arith.mulf %3, %2 : f32
      tile.yield %4 : f32
    } -> tensor<50xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<50xf32>
  }
}
// -----
builtin.module {
  func.func private @erf_mulf_50_f32_0(%0: index, %1: memref<50xf32>, %2: memref<50xf32>) {
    %3 = arith.constant 0 : index
    %4 = vector.load %1[%3] : memref<50xf32>, vector<16xf32>
    %5 = math.erf %4 : vector<16xf32>
    %6 = arith.mulf %5, %4 : vector<16xf32>
    %7 = arith.constant 16 : index
    %8 = vector.load %1[%7] : memref<50xf32>, vector<16xf32>
    %9 = math.erf %8 : vector<16xf32>
    %10 = arith.mulf %9, %8 : vector<16xf32>
    %11 = arith.constant 32 : index
    %12 = vector.load %1[%11] : memref<50xf32>, vector<16xf32>
    %13 = math.erf %12 : vector<16xf32>
    %14 = arith.mulf %13, %12 : vector<16xf32>
    vector.store %6, %2[%3] : memref<50xf32>, vector<16xf32>
    vector.store %10, %2[%7] : memref<50xf32>, vector<16xf32>
    vector.store %14, %2[%11] : memref<50xf32>, vector<16xf32>
    %15 = arith.constant 48 : index
    %16 = arith.constant 50 : index
    %17 = arith.constant 1 : index
    scf.for %18 = %15 to %16 step %17 {
      %19 = memref.load %1[%18] : memref<50xf32>
      %20 = math.erf %19 : f32
      %21 = arith.mulf %20, %19 : f32
      memref.store %21, %2[%18] : memref<50xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<50xf32>):
    %1 = tile.launch @erf_mulf_50_f32_0 chunks 1 : i64 inplace [0, 0](%0) : (tensor<50xf32>) -> tensor<50xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<50xf32>
  }
}
