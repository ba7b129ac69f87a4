// An unmarked loop inside a marked one is copied; marked loops in it are unrolled, too.
builtin.module {
  func.func private @rows(%0: index, %1: memref<8xf32>, %2: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    scf.for %row = %c0 to %c2 step %c1 {
      %r = arith.muli %row, %c4 : index
      scf.for %at = %c0 to %c4 step %c2 {
        %i = arith.addi %r, %at : index
        scf.for %next = %c0 to %c2 step %c1 {
          %j = arith.addi %i, %next : index
          %x = memref.load %1[%j] : memref<8xf32>
          %y = arith.addf %x, %x : f32
          memref.store %y, %2[%j] : memref<8xf32>
        } {unroll}
      }
    } {unroll}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<8xf32>):
    %1 = tile.launch @rows chunks 1 : i64 inplace [] (%0) : (tensor<8xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"z">], %1 : tensor<8xf32>
  }
}
// -----
builtin.module {
  func.func private @rows(%0: index, %1: memref<8xf32>, %2: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    scf.for %at = %c0 to %c4 step %c2 {
      %i = arith.addi %c0, %at : index
      %3 = memref.load %1[%i] : memref<8xf32>
      %4 = arith.addf %3, %3 : f32
      memref.store %4, %2[%i] : memref<8xf32>
      %5 = arith.addi %i, %c1 : index
      %6 = memref.load %1[%5] : memref<8xf32>
      %7 = arith.addf %6, %6 : f32
      memref.store %7, %2[%5] : memref<8xf32>
    }
    scf.for %at_1 = %c0 to %c4 step %c2 {
      %i_1 = arith.addi %c4, %at_1 : index
      %8 = memref.load %1[%i_1] : memref<8xf32>
      %9 = arith.addf %8, %8 : f32
      memref.store %9, %2[%i_1] : memref<8xf32>
      %10 = arith.addi %i_1, %c1 : index
      %11 = memref.load %1[%10] : memref<8xf32>
      %12 = arith.addf %11, %11 : f32
      memref.store %12, %2[%10] : memref<8xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<8xf32>):
    %1 = tile.launch @rows chunks 1 : i64 inplace [](%0) : (tensor<8xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"z">], %1 : tensor<8xf32>
  }
}
