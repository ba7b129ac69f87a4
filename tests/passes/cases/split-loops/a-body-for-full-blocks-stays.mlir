// Nothing computes the size of a block: the loop stays, without its mark in the output.
// -p split-loops
builtin.module {
  func.func private @zero(%0: index, %1: memref<6xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c6 = arith.constant 6 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %first = %c0 to %c6 step %c3 {
      scf.for %row = %c0 to %c3 step %c1 {
        %at = arith.addi %first, %row : index
        memref.store %zero, %1[%at] : memref<6xf32>
      }
    } {split}
    func.return
  }
  pg.graph @main inputs [] {
    %0 = tile.launch @zero chunks 1 : i64 inplace []() : () -> tensor<6xf32>
    pg.return [#pg.bytes<"y">], %0 : tensor<6xf32>
  }
}
// -----
builtin.module {
  func.func private @zero(%0: index, %1: memref<6xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c6 = arith.constant 6 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %first = %c0 to %c6 step %c3 {
      scf.for %row = %c0 to %c3 step %c1 {
        %at = arith.addi %first, %row : index
        memref.store %zero, %1[%at] : memref<6xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [] {
    %0 = tile.launch @zero chunks 1 : i64 inplace []() : () -> tensor<6xf32>
    pg.return [#pg.bytes<"y">], %0 : tensor<6xf32>
  }
}
