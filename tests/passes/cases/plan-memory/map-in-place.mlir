// A map may write its result to its operand's memory; the output is the caller's memory.
builtin.module {
  func.func private @exp_4_f32_0(%0: index, %1: memref<4xf32>, %2: memref<4xf32>) {
    %3 = arith.constant 0 : index
    %4 = vector.load %1[%3] : memref<4xf32>, vector<4xf32>
    %5 = math.exp %4 : vector<4xf32>
    vector.store %5, %2[%3] : memref<4xf32>, vector<4xf32>
    func.return
  }
  func.func private @cmpf_select_4_f32_0(%0: index, %1: memref<4xf32>, %2: memref<4xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 4 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 0.000000e+00 : f32
    scf.for %7 = %3 to %4 step %5 {
      %8 = memref.load %1[%7] : memref<4xf32>
      %9 = arith.cmpf olt, %8, %6 : f32
      %10 = arith.select %9, %6, %8 : f32
      memref.store %10, %2[%7] : memref<4xf32>
    }
    func.return
  }
  func.func private @addf_1_f32_0(%0: index, %1: memref<4xf32>, %2: memref<1xf32>) {
    %3 = arith.constant -0.000000e+00 : f32
    %4 = vector.broadcast %3 : f32 to vector<4xf32>
    %5 = arith.constant 0 : index
    %6 = vector.load %1[%5] : memref<4xf32>, vector<4xf32>
    %7 = arith.addf %4, %6 : vector<4xf32>
    %8 = vector.extract %7[0] : f32 from vector<4xf32>
    %9 = vector.extract %7[1] : f32 from vector<4xf32>
    %10 = vector.extract %7[2] : f32 from vector<4xf32>
    %11 = vector.extract %7[3] : f32 from vector<4xf32>
    %12 = arith.addf %8, %9 : f32
    %13 = arith.addf %10, %11 : f32
    %14 = arith.addf %12, %13 : f32
    %15 = arith.constant 0.000000e+00 : f32
    %16 = arith.addf %14, %3 : f32
    %17 = arith.addf %16, %15 : f32
    memref.store %17, %2[%5] : memref<1xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.launch @exp_4_f32_0 chunks 1 : i64 inplace [0, 0](%0) : (tensor<4xf32>) -> tensor<4xf32>
    %2 = tile.launch @cmpf_select_4_f32_0 chunks 1 : i64 inplace [0, 0](%1) : (tensor<4xf32>) -> tensor<4xf32>
    %3 = tile.launch @addf_1_f32_0 chunks 1 : i64 inplace [](%2) : (tensor<4xf32>) -> tensor<f32>
    pg.return [#pg.bytes<"v2">], %3 : tensor<f32>
  }
}
// -----
builtin.module {
  func.func private @exp_4_f32_0(%0: index, %1: memref<4xf32>, %2: memref<4xf32>) {
    %3 = arith.constant 0 : index
    %4 = vector.load %1[%3] : memref<4xf32>, vector<4xf32>
    %5 = math.exp %4 : vector<4xf32>
    vector.store %5, %2[%3] : memref<4xf32>, vector<4xf32>
    func.return
  }
  func.func private @cmpf_select_4_f32_0(%0: index, %1: memref<4xf32>, %2: memref<4xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 4 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 0.000000e+00 : f32
    scf.for %7 = %3 to %4 step %5 {
      %8 = memref.load %1[%7] : memref<4xf32>
      %9 = arith.cmpf olt, %8, %6 : f32
      %10 = arith.select %9, %6, %8 : f32
      memref.store %10, %2[%7] : memref<4xf32>
    }
    func.return
  }
  func.func private @addf_1_f32_0(%0: index, %1: memref<4xf32>, %2: memref<1xf32>) {
    %3 = arith.constant -0.000000e+00 : f32
    %4 = vector.broadcast %3 : f32 to vector<4xf32>
    %5 = arith.constant 0 : index
    %6 = vector.load %1[%5] : memref<4xf32>, vector<4xf32>
    %7 = arith.addf %4, %6 : vector<4xf32>
    %8 = vector.extract %7[0] : f32 from vector<4xf32>
    %9 = vector.extract %7[1] : f32 from vector<4xf32>
    %10 = vector.extract %7[2] : f32 from vector<4xf32>
    %11 = vector.extract %7[3] : f32 from vector<4xf32>
    %12 = arith.addf %8, %9 : f32
    %13 = arith.addf %10, %11 : f32
    %14 = arith.addf %12, %13 : f32
    %15 = arith.constant 0.000000e+00 : f32
    %16 = arith.addf %14, %3 : f32
    %17 = arith.addf %16, %15 : f32
    memref.store %17, %2[%5] : memref<1xf32>
    func.return
  }
  tile.program @main arena 64 : i64 persistent 0 : i64 lower_bound 64 : i64 prepare {
  ^bb0:
  } body {
    %x0 = tile.buffer "input" at 0 : i64 named <"x0"> : memref<4xf32>
    %v2 = tile.buffer "output" at 0 : i64 named <"v2"> : memref<f32>
    %arena = tile.buffer "arena" at 0 : i64 named <""> : memref<4xf32>
    %v2_1 = tile.buffer "output" at 0 : i64 named <"v2"> : memref<1xf32>
    tile.call @exp_4_f32_0 chunks 1 : i64(%x0, %arena) : memref<4xf32>, memref<4xf32>
    tile.call @cmpf_select_4_f32_0 chunks 1 : i64(%arena, %arena) : memref<4xf32>, memref<4xf32>
    tile.call @addf_1_f32_0 chunks 1 : i64(%arena, %v2_1) : memref<4xf32>, memref<1xf32>
  }
}
