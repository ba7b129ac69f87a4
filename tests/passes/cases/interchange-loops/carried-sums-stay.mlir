// A loop around one that carries its sum keeps its place and loses its mark: the sum would have to be in memory.
// -p interchange-loops
builtin.module {
  func.func private @carried(%0: index, %1: memref<6xf32>, %2: memref<12xf32>, %3: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %lane = %c0 to %c4 step %c1 {
      %sum = scf.for %k = %c0 to %c3 step %c1 iter_args(%old = %zero) -> (f32) {
        %b = arith.muli %k, %c4 : index
        %p = arith.addi %b, %lane : index
        %y = memref.load %2[%p] : memref<12xf32>
        %more = arith.addf %old, %y : f32
        scf.yield %more : f32
      }
      memref.store %sum, %3[%lane] : memref<8xf32>
      %second = arith.addi %lane, %c4 : index
      memref.store %sum, %3[%second] : memref<8xf32>
    } {interchange}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<3x4xf32>):
    %2 = tile.launch @carried chunks 1 : i64 inplace [] (%0, %1) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2x4xf32>
  }
}
// -----
builtin.module {
  func.func private @carried(%0: index, %1: memref<6xf32>, %2: memref<12xf32>, %3: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %lane = %c0 to %c4 step %c1 {
      %sum = scf.for %k = %c0 to %c3 step %c1 iter_args(%old = %zero) -> (f32) {
        %b = arith.muli %k, %c4 : index
        %p = arith.addi %b, %lane : index
        %y = memref.load %2[%p] : memref<12xf32>
        %more = arith.addf %old, %y : f32
        scf.yield %more : f32
      }
      memref.store %sum, %3[%lane] : memref<8xf32>
      %second = arith.addi %lane, %c4 : index
      memref.store %sum, %3[%second] : memref<8xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<3x4xf32>):
    %2 = tile.launch @carried chunks 1 : i64 inplace [](%0, %1) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2x4xf32>
  }
}
