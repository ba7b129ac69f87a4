// A division by a positive constant cannot trap, so a marked loop moves past it, too.
// -p interchange-loops
builtin.module {
  func.func private @sums(%0: index, %1: memref<6xf32>, %2: memref<24xf32>, %3: memref<4xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c6 = arith.constant 6 : index
    %c2 = arith.constant 2 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %lane = %c0 to %c4 step %c1 {
      memref.store %zero, %3[%lane] : memref<4xf32>
      scf.for %k = %c0 to %c6 step %c1 {
        %column = arith.remsi %k, %c3 : index
        %row = arith.divsi %k, %c3 : index
        %first = arith.muli %column, %c2 : index
        %at = arith.addi %first, %row : index
        %x = memref.load %1[%at] : memref<6xf32>
        %start = arith.muli %k, %c4 : index
        %p = arith.addi %start, %lane : index
        %y = memref.load %2[%p] : memref<24xf32>
        %sum = memref.load %3[%lane] : memref<4xf32>
        %product = arith.mulf %x, %y : f32
        %more = arith.addf %sum, %product : f32
        memref.store %more, %3[%lane] : memref<4xf32>
      }
    } {interchange}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<6x4xf32>):
    %2 = tile.launch @sums chunks 1 : i64 inplace [] (%0, %1) : (tensor<2x3xf32>, tensor<6x4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<4xf32>
  }
}
// -----
builtin.module {
  func.func private @sums(%0: index, %1: memref<6xf32>, %2: memref<24xf32>, %3: memref<4xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c6 = arith.constant 6 : index
    %c2 = arith.constant 2 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %4 = %c0 to %c4 step %c1 {
      memref.store %zero, %3[%4] : memref<4xf32>
    }
    scf.for %5 = %c0 to %c6 step %c1 {
      %6 = arith.remsi %5, %c3 : index
      %7 = arith.divsi %5, %c3 : index
      %8 = arith.muli %6, %c2 : index
      %9 = arith.addi %8, %7 : index
      %10 = arith.muli %5, %c4 : index
      %11 = memref.load %1[%9] : memref<6xf32>
      scf.for %12 = %c0 to %c4 step %c1 {
        %13 = memref.load %3[%12] : memref<4xf32>
        %14 = arith.addi %10, %12 : index
        %15 = memref.load %2[%14] : memref<24xf32>
        %16 = arith.mulf %11, %15 : f32
        %17 = arith.addf %13, %16 : f32
        memref.store %17, %3[%12] : memref<4xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<2x3xf32>, %1: tensor<6x4xf32>):
    %2 = tile.launch @sums chunks 1 : i64 inplace [](%0, %1) : (tensor<2x3xf32>, tensor<6x4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<4xf32>
  }
}
