// A marked loop moves through all loops that it holds; what depends on their counters alone stays in them.
// -p interchange-loops
builtin.module {
  func.func private @sums(%0: index, %1: memref<6xf32>, %2: memref<12xf32>, %3: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %lane = %c0 to %c4 step %c1 {
      memref.store %zero, %3[%lane] : memref<8xf32>
      %second = arith.addi %lane, %c4 : index
      memref.store %zero, %3[%second] : memref<8xf32>
      scf.for %i = %c0 to %c2 step %c1 {
        %first = arith.muli %i, %c3 : index
        scf.for %j = %c0 to %c3 step %c1 {
          %at = arith.addi %first, %j : index
          %x = memref.load %1[%at] : memref<6xf32>
          %row = arith.muli %j, %c4 : index
          %p = arith.addi %row, %lane : index
          %y = memref.load %2[%p] : memref<12xf32>
          %o = arith.muli %i, %c4 : index
          %q = arith.addi %o, %lane : index
          %sum = memref.load %3[%q] : memref<8xf32>
          %product = arith.mulf %x, %y : f32
          %more = arith.addf %sum, %product : f32
          memref.store %more, %3[%q] : memref<8xf32>
        } {unroll}
      }
    } {interchange}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<3x4xf32>):
    %2 = tile.launch @sums chunks 1 : i64 inplace [] (%0, %1) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2x4xf32>
  }
}
// -----
builtin.module {
  func.func private @sums(%0: index, %1: memref<6xf32>, %2: memref<12xf32>, %3: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %4 = %c0 to %c4 step %c1 {
      memref.store %zero, %3[%4] : memref<8xf32>
      %5 = arith.addi %4, %c4 : index
      memref.store %zero, %3[%5] : memref<8xf32>
    }
    scf.for %6 = %c0 to %c2 step %c1 {
      %7 = arith.muli %6, %c3 : index
      scf.for %8 = %c0 to %c3 step %c1 {
        %9 = arith.addi %7, %8 : index
        %10 = arith.muli %8, %c4 : index
        %11 = arith.muli %6, %c4 : index
        %12 = memref.load %1[%9] : memref<6xf32>
        scf.for %13 = %c0 to %c4 step %c1 {
          %14 = arith.addi %11, %13 : index
          %15 = memref.load %3[%14] : memref<8xf32>
          %16 = arith.addi %10, %13 : index
          %17 = memref.load %2[%16] : memref<12xf32>
          %18 = arith.mulf %12, %17 : f32
          %19 = arith.addf %15, %18 : f32
          memref.store %19, %3[%14] : memref<8xf32>
        }
      } {unroll}
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<3x4xf32>):
    %2 = tile.launch @sums chunks 1 : i64 inplace [](%0, %1) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2x4xf32>
  }
}
