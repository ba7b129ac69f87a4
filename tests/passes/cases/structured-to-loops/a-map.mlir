// Whole vectors, then what is left over.
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
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<6xf32>):
    %1 = tile.kernel chunks 1 : i64 inplace [0, 0] ins(%0 : tensor<6xf32>) {
    ^bb0(%2: index, %3: memref<6xf32>, %4: memref<6xf32>):
      %5 = arith.constant 0 : index
      %6 = vector.load %3[%5] : memref<6xf32>, vector<4xf32>
      %7 = arith.constant 0.000000e+00 : f32
      %8 = vector.broadcast %7 : f32 to vector<4xf32>
      %9 = tile.compare 4 : i64 %6, %8 : vector<4xf32> -> vector<4xi1>
      %10 = tile.select %9, %8, %6 : vector<4xi1>, vector<4xf32>
      vector.store %10, %4[%5] : memref<6xf32>, vector<4xf32>
      %11 = arith.constant 4 : index
      %12 = arith.constant 6 : index
      %13 = arith.constant 1 : index
      scf.for %14 = %11 to %12 step %13 {
        %15 = memref.load %3[%14] : memref<6xf32>
        %16 = arith.cmpf olt, %15, %7 : f32
        %17 = arith.select %16, %7, %15 : f32
        memref.store %17, %4[%14] : memref<6xf32>
      }
    } -> tensor<6xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<6xf32>
  }
}
