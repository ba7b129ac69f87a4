// What reads some lanes of a register gets them from its value: a narrower vector, and a scalar.
// -p unroll-loops
builtin.module {
  func.func private @double(%0: index, %1: memref<8xf32>, %2: memref<5xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c5 = arith.constant 5 : index
    %c8 = arith.constant 8 : index
    %sums = memref.alloca() : memref<8xf32>
    scf.for %lane = %c0 to %c8 step %c8 {
      %x = vector.load %1[%lane] : memref<8xf32>, vector<8xf32>
      %y = arith.addf %x, %x : vector<8xf32>
      vector.store %y, %sums[%lane] : memref<8xf32>, vector<8xf32>
    } {unroll}
    scf.for %lane = %c0 to %c4 step %c4 {
      %x = vector.load %sums[%lane] : memref<8xf32>, vector<4xf32>
      vector.store %x, %2[%lane] : memref<5xf32>, vector<4xf32>
    } {unroll}
    scf.for %lane = %c4 to %c5 step %c1 {
      %x = memref.load %sums[%lane] : memref<8xf32>
      memref.store %x, %2[%lane] : memref<5xf32>
    } {unroll}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<8xf32>):
    %1 = tile.launch @double chunks 1 : i64 inplace [] (%0) : (tensor<8xf32>) -> tensor<5xf32>
    pg.return [#pg.bytes<"y">], %1 : tensor<5xf32>
  }
}
// -----
builtin.module {
  func.func private @double(%0: index, %1: memref<8xf32>, %2: memref<5xf32>) {
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %3 = vector.load %1[%c0] : memref<8xf32>, vector<8xf32>
    %4 = arith.addf %3, %3 : vector<8xf32>
    %5 = vector.shuffle %4, %4 [0, 1, 2, 3] : vector<8xf32>, vector<8xf32>
    vector.store %5, %2[%c0] : memref<5xf32>, vector<4xf32>
    %6 = vector.extract %4[4] : f32 from vector<8xf32>
    memref.store %6, %2[%c4] : memref<5xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<8xf32>):
    %1 = tile.launch @double chunks 1 : i64 inplace [](%0) : (tensor<8xf32>) -> tensor<5xf32>
    pg.return [#pg.bytes<"y">], %1 : tensor<5xf32>
  }
}
