// Lines that are written with a large stride are prefetched for writing, two steps before.
builtin.module {
  func.func private @columns(%chunk: index, %x: memref<8xf32>, %y: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    scf.for %i = %c0 to %c4 step %c1 {
      %from = arith.muli %i, %c2 : index
      %first = memref.load %x[%from] : memref<8xf32>
      memref.store %first, %y[%i] : memref<8xf32>
      %after = arith.addi %from, %c1 : index
      %second = memref.load %x[%after] : memref<8xf32>
      %below = arith.addi %i, %c4 : index
      memref.store %second, %y[%below] : memref<8xf32>
    } {prefetch = #tile.prefetch_ahead<argument 2, by 2>}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xf32>):
    %y = tile.launch @columns chunks 1 : i64 inplace [](%x) : (tensor<8xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf32>
  }
}
// -----
builtin.module {
  func.func private @columns(%chunk: index, %x: memref<8xf32>, %y: memref<8xf32>) {
    %0 = arith.constant 6 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    scf.for %i = %c0 to %c4 step %c1 {
      %from = arith.muli %i, %c2 : index
      %first = memref.load %x[%from] : memref<8xf32>
      memref.store %first, %y[%i] : memref<8xf32>
      %1 = arith.addi %i, %c2 : index
      tile.prefetch %y[%1] written : memref<8xf32>
      %after = arith.addi %from, %c1 : index
      %second = memref.load %x[%after] : memref<8xf32>
      %below = arith.addi %i, %c4 : index
      memref.store %second, %y[%below] : memref<8xf32>
      %2 = arith.addi %i, %0 : index
      tile.prefetch %y[%2] written : memref<8xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xf32>):
    %y = tile.launch @columns chunks 1 : i64 inplace [](%x) : (tensor<8xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf32>
  }
}
