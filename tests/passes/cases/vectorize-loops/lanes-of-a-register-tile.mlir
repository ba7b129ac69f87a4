// Consecutive elements become vectors of the widths that a loop is marked with, what all lanes have in common is broadcast, and the last lane stays a scalar.
// -p vectorize-loops
builtin.module {
  func.func private @product(%0: index, %1: memref<6xf32>, %2: memref<18xf32>, %3: memref<27xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c9 = arith.constant 9 : index
    %zero = arith.constant 0.000000e+00 : f32
    %sums = memref.alloca() : memref<27xf32>
    scf.for %lane = %c0 to %c9 step %c1 {
      memref.store %zero, %sums[%lane] : memref<27xf32>
    } {vectorize = array<i64: 4, 4, 1>}
    scf.for %k = %c0 to %c1 step %c1 {
      %b = arith.muli %k, %c9 : index
      %x = memref.load %1[%k] : memref<6xf32>
      scf.for %lane = %c0 to %c9 step %c1 {
        %sum = memref.load %sums[%lane] : memref<27xf32>
        %p = arith.addi %b, %lane : index
        %y = memref.load %2[%p] : memref<18xf32>
        %product = arith.mulf %x, %y : f32
        %more = arith.addf %sum, %product : f32
        memref.store %more, %sums[%lane] : memref<27xf32>
      } {vectorize = array<i64: 4, 4, 1>}
    }
    scf.for %row = %c0 to %c3 step %c1 {
      %r = arith.muli %row, %c9 : index
      scf.for %lane = %c0 to %c9 step %c1 {
        %sum = memref.load %sums[%lane] : memref<27xf32>
        %more = arith.addf %sum, %sum : f32
        %at = arith.addi %r, %lane : index
        memref.store %more, %3[%at] : memref<27xf32>
      } {vectorize = array<i64: 8, 1>}
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<6xf32>, %1: tensor<2x9xf32>):
    %2 = tile.launch @product chunks 1 : i64 inplace [] (%0, %1) : (tensor<6xf32>, tensor<2x9xf32>) -> tensor<3x9xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<3x9xf32>
  }
}
// -----
builtin.module {
  func.func private @product(%0: index, %1: memref<6xf32>, %2: memref<18xf32>, %3: memref<27xf32>) {
    %4 = arith.constant 4 : index
    %5 = arith.constant 8 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c9 = arith.constant 9 : index
    %zero = arith.constant 0.000000e+00 : f32
    %sums = memref.alloca() : memref<27xf32>
    scf.for %6 = %c0 to %5 step %4 {
      %7 = vector.broadcast %zero : f32 to vector<4xf32>
      vector.store %7, %sums[%6] : memref<27xf32>, vector<4xf32>
    } {unroll}
    scf.for %8 = %5 to %c9 step %c1 {
      memref.store %zero, %sums[%8] : memref<27xf32>
    } {unroll}
    scf.for %k = %c0 to %c1 step %c1 {
      %b = arith.muli %k, %c9 : index
      %x = memref.load %1[%k] : memref<6xf32>
      scf.for %9 = %c0 to %5 step %4 {
        %10 = vector.load %sums[%9] : memref<27xf32>, vector<4xf32>
        %11 = arith.addi %b, %9 : index
        %12 = vector.load %2[%11] : memref<18xf32>, vector<4xf32>
        %13 = vector.broadcast %x : f32 to vector<4xf32>
        %14 = vector.fma %13, %12, %10 : vector<4xf32>
        vector.store %14, %sums[%9] : memref<27xf32>, vector<4xf32>
      } {unroll}
      scf.for %15 = %5 to %c9 step %c1 {
        %16 = memref.load %sums[%15] : memref<27xf32>
        %17 = arith.addi %b, %15 : index
        %18 = memref.load %2[%17] : memref<18xf32>
        %19 = arith.mulf %x, %18 : f32
        %20 = arith.addf %16, %19 : f32
        memref.store %20, %sums[%15] : memref<27xf32>
      } {unroll}
    }
    scf.for %row = %c0 to %c3 step %c1 {
      %r = arith.muli %row, %c9 : index
      scf.for %21 = %c0 to %5 step %5 {
        %22 = vector.load %sums[%21] : memref<27xf32>, vector<8xf32>
        %23 = arith.addf %22, %22 : vector<8xf32>
        %24 = arith.addi %r, %21 : index
        vector.store %23, %3[%24] : memref<27xf32>, vector<8xf32>
      } {unroll}
      scf.for %25 = %5 to %c9 step %c1 {
        %26 = memref.load %sums[%25] : memref<27xf32>
        %27 = arith.addf %26, %26 : f32
        %28 = arith.addi %r, %25 : index
        memref.store %27, %3[%28] : memref<27xf32>
      } {unroll}
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<6xf32>, %1: tensor<2x9xf32>):
    %2 = tile.launch @product chunks 1 : i64 inplace [](%0, %1) : (tensor<6xf32>, tensor<2x9xf32>) -> tensor<3x9xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<3x9xf32>
  }
}
