// Rows and vectors of a tile are unrolled; its sums are values, and each factor is loaded once.
// -p unroll-loops
builtin.module {
  func.func private @product(%0: index, %1: memref<16xf32>, %2: memref<64xf32>, %3: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %zero = arith.constant 0.000000e+00 : f32
    %zeros = vector.broadcast %zero : f32 to vector<4xf32>
    %sums = memref.alloca() : memref<16xf32>
    scf.for %row = %c0 to %c2 step %c1 {
      %r = arith.muli %row, %c8 : index
      scf.for %lane = %c0 to %c8 step %c4 {
        %s = arith.addi %r, %lane : index
        vector.store %zeros, %sums[%s] : memref<16xf32>, vector<4xf32>
      } {unroll}
    } {unroll}
    scf.for %k = %c0 to %c8 step %c1 {
      %b = arith.muli %k, %c8 : index
      scf.for %row = %c0 to %c2 step %c1 {
        %r = arith.muli %row, %c8 : index
        %a = arith.addi %r, %k : index
        %x = memref.load %1[%a] : memref<16xf32>
        %xs = vector.broadcast %x : f32 to vector<4xf32>
        scf.for %lane = %c0 to %c8 step %c4 {
          %s = arith.addi %r, %lane : index
          %sum = vector.load %sums[%s] : memref<16xf32>, vector<4xf32>
          %p = arith.addi %b, %lane : index
          %y = vector.load %2[%p] : memref<64xf32>, vector<4xf32>
          %more = vector.fma %xs, %y, %sum : vector<4xf32>
          vector.store %more, %sums[%s] : memref<16xf32>, vector<4xf32>
        } {unroll}
      } {unroll}
    }
    scf.for %row = %c0 to %c2 step %c1 {
      %r = arith.muli %row, %c8 : index
      scf.for %lane = %c0 to %c8 step %c4 {
        %s = arith.addi %r, %lane : index
        %sum = vector.load %sums[%s] : memref<16xf32>, vector<4xf32>
        vector.store %sum, %3[%s] : memref<16xf32>, vector<4xf32>
      } {unroll}
    } {unroll}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x8xf32>, %1: tensor<8x8xf32>):
    %2 = tile.launch @product chunks 1 : i64 inplace [] (%0, %1) : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2x8xf32>
  }
}
// -----
builtin.module {
  func.func private @product(%0: index, %1: memref<16xf32>, %2: memref<64xf32>, %3: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %zero = arith.constant 0.000000e+00 : f32
    %zeros = vector.broadcast %zero : f32 to vector<4xf32>
    %4, %5, %6, %7 = scf.for %k = %c0 to %c8 step %c1 iter_args(%8 = %zeros, %9 = %zeros, %10 = %zeros, %11 = %zeros) -> (vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>) {
      %12 = memref.load %1[%k] : memref<16xf32>
      %13 = vector.broadcast %12 : f32 to vector<4xf32>
      %b = arith.muli %k, %c8 : index
      %14 = vector.load %2[%b] : memref<64xf32>, vector<4xf32>
      %15 = vector.fma %13, %14, %8 : vector<4xf32>
      %16 = arith.addi %b, %c4 : index
      %17 = vector.load %2[%16] : memref<64xf32>, vector<4xf32>
      %18 = vector.fma %13, %17, %9 : vector<4xf32>
      %19 = arith.addi %k, %c8 : index
      %20 = memref.load %1[%19] : memref<16xf32>
      %21 = vector.broadcast %20 : f32 to vector<4xf32>
      %22 = vector.fma %21, %14, %10 : vector<4xf32>
      %23 = vector.fma %21, %17, %11 : vector<4xf32>
      scf.yield %15, %18, %22, %23 : vector<4xf32>, vector<4xf32>, vector<4xf32>, vector<4xf32>
    }
    vector.store %4, %3[%c0] : memref<16xf32>, vector<4xf32>
    vector.store %5, %3[%c4] : memref<16xf32>, vector<4xf32>
    vector.store %6, %3[%c8] : memref<16xf32>, vector<4xf32>
    %24 = arith.constant 12 : index
    vector.store %7, %3[%24] : memref<16xf32>, vector<4xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x8xf32>, %1: tensor<8x8xf32>):
    %2 = tile.launch @product chunks 1 : i64 inplace [](%0, %1) : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2x8xf32>
  }
}
