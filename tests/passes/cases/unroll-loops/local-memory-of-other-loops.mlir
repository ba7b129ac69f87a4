// Local memory that a loop reads which is not unrolled remains memory. Loads of memory that may have
// changed are not merged.
builtin.module {
  func.func private @shifted(%0: index, %1: memref<4xf32>, %2: memref<4xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c3 = arith.constant 3 : index
    %local = memref.alloca() : memref<4xf32>
    scf.for %at = %c0 to %c4 step %c2 {
      scf.for %other = %c0 to %c2 step %c1 {
        %i = arith.addi %at, %other : index
        %x = memref.load %1[%c0] : memref<4xf32>
        %y = memref.load %1[%i] : memref<4xf32>
        %sum = arith.addf %x, %y : f32
        memref.store %sum, %local[%i] : memref<4xf32>
      } {unroll}
    } {unroll}
    scf.for %at = %c0 to %c4 step %c1 {
      %i = arith.subi %c3, %at : index
      %x = memref.load %local[%i] : memref<4xf32>
      memref.store %x, %2[%at] : memref<4xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.launch @shifted chunks 1 : i64 inplace [] (%0) : (tensor<4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"z">], %1 : tensor<4xf32>
  }
}
// -----
builtin.module {
  func.func private @shifted(%0: index, %1: memref<4xf32>, %2: memref<4xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c3 = arith.constant 3 : index
    %local = memref.alloca() : memref<4xf32>
    %3 = memref.load %1[%c0] : memref<4xf32>
    %4 = memref.load %1[%c0] : memref<4xf32>
    %5 = arith.addf %3, %4 : f32
    memref.store %5, %local[%c0] : memref<4xf32>
    %6 = memref.load %1[%c0] : memref<4xf32>
    %7 = memref.load %1[%c1] : memref<4xf32>
    %8 = arith.addf %6, %7 : f32
    memref.store %8, %local[%c1] : memref<4xf32>
    %9 = memref.load %1[%c0] : memref<4xf32>
    %10 = memref.load %1[%c2] : memref<4xf32>
    %11 = arith.addf %9, %10 : f32
    memref.store %11, %local[%c2] : memref<4xf32>
    %12 = memref.load %1[%c0] : memref<4xf32>
    %13 = memref.load %1[%c3] : memref<4xf32>
    %14 = arith.addf %12, %13 : f32
    memref.store %14, %local[%c3] : memref<4xf32>
    scf.for %at = %c0 to %c4 step %c1 {
      %i = arith.subi %c3, %at : index
      %x = memref.load %local[%i] : memref<4xf32>
      memref.store %x, %2[%at] : memref<4xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<4xf32>):
    %1 = tile.launch @shifted chunks 1 : i64 inplace [](%0) : (tensor<4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"z">], %1 : tensor<4xf32>
  }
}
