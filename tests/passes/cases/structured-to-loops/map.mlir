// Whole vectors, then the remaining elements.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<6xf32>):
    %1 = tile.map ins(%0 : tensor<6xf32>) domain [6] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%2: f32):
      %3 = arith.constant 0.000000e+00 : f32
      %4 = arith.cmpf olt, %2, %3 : f32
      %5 = arith.select %4, %3, %2 : f32
      tile.yield %5 : f32
    } -> tensor<6xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<6xf32>
  }
}
// -----
builtin.module {
  func.func private @cmpf_select_6_f32_0(%0: index, %1: memref<6xf32>, %2: memref<6xf32>) {
    %3 = arith.constant 0 : index
    %4 = vector.load %1[%3] : memref<6xf32>, vector<4xf32>
    %5 = arith.constant 0.000000e+00 : f32
    %6 = vector.broadcast %5 : f32 to vector<4xf32>
    %7 = tile.compare 4 : i64 %4, %6 : vector<4xf32> -> vector<4xi1>
    %8 = tile.select %7, %6, %4 : vector<4xi1>, vector<4xf32>
    vector.store %8, %2[%3] : memref<6xf32>, vector<4xf32>
    %9 = arith.constant 4 : index
    %10 = arith.constant 6 : index
    %11 = arith.constant 1 : index
    scf.for %12 = %9 to %10 step %11 {
      %13 = memref.load %1[%12] : memref<6xf32>
      %14 = arith.cmpf olt, %13, %5 : f32
      %15 = arith.select %14, %5, %13 : f32
      memref.store %15, %2[%12] : memref<6xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<6xf32>):
    %1 = tile.launch @cmpf_select_6_f32_0 chunks 1 : i64 inplace [0, 0](%0) : (tensor<6xf32>) -> tensor<6xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<6xf32>
  }
}
