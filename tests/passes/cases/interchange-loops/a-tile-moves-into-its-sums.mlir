// Rows and lanes around a sum move into its loop: each stretch before, in and after it gets loops of its own, and computes its indices again.
// -p interchange-loops
builtin.module {
  func.func private @product(%0: index, %1: memref<6xf32>, %2: memref<12xf32>, %3: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %zero = arith.constant 0.000000e+00 : f32
    %sums = memref.alloca() : memref<8xf32>
    scf.for %row = %c0 to %c2 step %c1 {
      %r = arith.muli %row, %c4 : index
      %a = arith.muli %row, %c3 : index
      scf.for %lane = %c0 to %c4 step %c1 {
        %s = arith.addi %r, %lane : index
        memref.store %zero, %sums[%s] : memref<8xf32>
        scf.for %k = %c0 to %c3 step %c1 {
          %at = arith.addi %a, %k : index
          %x = memref.load %1[%at] : memref<6xf32>
          %b = arith.muli %k, %c4 : index
          %p = arith.addi %b, %lane : index
          %y = memref.load %2[%p] : memref<12xf32>
          %sum = memref.load %sums[%s] : memref<8xf32>
          %product = arith.mulf %x, %y : f32
          %more = arith.addf %sum, %product : f32
          memref.store %more, %sums[%s] : memref<8xf32>
        }
        %sum = memref.load %sums[%s] : memref<8xf32>
        memref.store %sum, %3[%s] : memref<8xf32>
      } {interchange, vectorize = array<i64: 4>}
    } {unroll, interchange}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<3x4xf32>):
    %2 = tile.launch @product chunks 1 : i64 inplace [] (%0, %1) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2x4xf32>
  }
}
// -----
builtin.module {
  func.func private @product(%0: index, %1: memref<6xf32>, %2: memref<12xf32>, %3: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %zero = arith.constant 0.000000e+00 : f32
    %sums = memref.alloca() : memref<8xf32>
    scf.for %4 = %c0 to %c2 step %c1 {
      %5 = arith.muli %4, %c4 : index
      scf.for %6 = %c0 to %c4 step %c1 {
        %7 = arith.addi %5, %6 : index
        memref.store %zero, %sums[%7] : memref<8xf32>
      } {vectorize = array<i64: 4>}
    } {unroll}
    scf.for %8 = %c0 to %c3 step %c1 {
      %9 = arith.muli %8, %c4 : index
      scf.for %10 = %c0 to %c2 step %c1 {
        %11 = arith.muli %10, %c4 : index
        %12 = arith.muli %10, %c3 : index
        %13 = arith.addi %12, %8 : index
        %14 = memref.load %1[%13] : memref<6xf32>
        scf.for %15 = %c0 to %c4 step %c1 {
          %16 = arith.addi %11, %15 : index
          %17 = memref.load %sums[%16] : memref<8xf32>
          %18 = arith.addi %9, %15 : index
          %19 = memref.load %2[%18] : memref<12xf32>
          %20 = arith.mulf %14, %19 : f32
          %21 = arith.addf %17, %20 : f32
          memref.store %21, %sums[%16] : memref<8xf32>
        } {vectorize = array<i64: 4>}
      } {unroll}
    }
    scf.for %22 = %c0 to %c2 step %c1 {
      %23 = arith.muli %22, %c4 : index
      scf.for %24 = %c0 to %c4 step %c1 {
        %25 = arith.addi %23, %24 : index
        %26 = memref.load %sums[%25] : memref<8xf32>
        memref.store %26, %3[%25] : memref<8xf32>
      } {vectorize = array<i64: 4>}
    } {unroll}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<3x4xf32>):
    %2 = tile.launch @product chunks 1 : i64 inplace [](%0, %1) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2x4xf32>
  }
}
