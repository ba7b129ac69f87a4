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
      %6 = arith.constant 6 : index
      %7 = arith.constant 1 : index
      %8 = arith.constant 0.000000e+00 : f32
      scf.for %9 = %5 to %6 step %7 {
        %10 = memref.load %3[%9] : memref<6xf32>
        %11 = arith.cmpf olt, %10, %8 : f32
        %12 = arith.select %11, %8, %10 : f32
        memref.store %12, %4[%9] : memref<6xf32>
      }
    } -> tensor<6xf32>
    pg.return [#pg.bytes<"v0">], %1 : tensor<6xf32>
  }
}
