// The distance is a constant of the second loop, which moves before the first one.
builtin.module {
  func.func private @move(%chunk: index, %x: memref<32xf32>, %y: memref<32xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    scf.for %i = %c0 to %c16 step %c1 {
      %first = memref.load %x[%i] : memref<32xf32>
      memref.store %first, %y[%i] : memref<32xf32>
    } {prefetch = #tile.prefetch_ahead<argument 1, by 32>}
    %c32 = arith.constant 32 : index
    scf.for %i = %c16 to %c32 step %c1 {
      %second = memref.load %x[%i] : memref<32xf32>
      memref.store %second, %y[%i] : memref<32xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<32xf32>):
    %y = tile.launch @move chunks 1 : i64 inplace [](%x) : (tensor<32xf32>) -> tensor<32xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<32xf32>
  }
}
// -----
builtin.module {
  func.func private @move(%chunk: index, %x: memref<32xf32>, %y: memref<32xf32>) {
    %c32 = arith.constant 32 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    scf.for %i = %c0 to %c16 step %c1 {
      %0 = arith.addi %i, %c32 : index
      tile.prefetch %x[%0] : memref<32xf32>
      %first = memref.load %x[%i] : memref<32xf32>
      memref.store %first, %y[%i] : memref<32xf32>
    }
    scf.for %i_1 = %c16 to %c32 step %c1 {
      %second = memref.load %x[%i_1] : memref<32xf32>
      memref.store %second, %y[%i_1] : memref<32xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<32xf32>):
    %y = tile.launch @move chunks 1 : i64 inplace [](%x) : (tensor<32xf32>) -> tensor<32xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<32xf32>
  }
}
