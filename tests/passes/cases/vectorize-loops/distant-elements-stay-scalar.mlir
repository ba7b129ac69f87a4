// A loop that reads every other element, or computes with its counter, keeps its iterations and loses its mark.
// -p vectorize-loops
builtin.module {
  func.func private @every_other(%0: index, %1: memref<16xf32>, %2: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c8 = arith.constant 8 : index
    scf.for %lane = %c0 to %c8 step %c1 {
      %at = arith.muli %lane, %c2 : index
      %x = memref.load %1[%at] : memref<16xf32>
      memref.store %x, %2[%lane] : memref<8xf32>
    } {vectorize = array<i64: 4, 4>}
    func.return
  }
  func.func private @counted(%0: index, %1: memref<8xf32>, %2: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    scf.for %lane = %c0 to %c8 step %c1 {
      %number = arith.index_cast %lane : index to i32
      %n = arith.sitofp %number : i32 to f32
      %x = memref.load %1[%lane] : memref<8xf32>
      %y = arith.mulf %x, %n : f32
      memref.store %y, %2[%lane] : memref<8xf32>
    } {vectorize = array<i64: 8>}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<16xf32>):
    %1 = tile.launch @every_other chunks 1 : i64 inplace [] (%0) : (tensor<16xf32>) -> tensor<8xf32>
    %2 = tile.launch @counted chunks 1 : i64 inplace [] (%1) : (tensor<8xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<8xf32>
  }
}
// -----
builtin.module {
  func.func private @every_other(%0: index, %1: memref<16xf32>, %2: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c8 = arith.constant 8 : index
    scf.for %lane = %c0 to %c8 step %c1 {
      %at = arith.muli %lane, %c2 : index
      %x = memref.load %1[%at] : memref<16xf32>
      memref.store %x, %2[%lane] : memref<8xf32>
    }
    func.return
  }
  func.func private @counted(%0: index, %1: memref<8xf32>, %2: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    scf.for %lane = %c0 to %c8 step %c1 {
      %number = arith.index_cast %lane : index to i32
      %n = arith.sitofp %number : i32 to f32
      %x = memref.load %1[%lane] : memref<8xf32>
      %y = arith.mulf %x, %n : f32
      memref.store %y, %2[%lane] : memref<8xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%0: tensor<16xf32>):
    %1 = tile.launch @every_other chunks 1 : i64 inplace [](%0) : (tensor<16xf32>) -> tensor<8xf32>
    %2 = tile.launch @counted chunks 1 : i64 inplace [](%1) : (tensor<8xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"y">], %2 : tensor<8xf32>
  }
}
