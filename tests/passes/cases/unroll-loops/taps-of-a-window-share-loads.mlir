// Two results of a window of three taps load four elements, not six: loops that only change registers
// load common elements once.
builtin.module {
  func.func private @window(%0: index, %1: memref<4xf32>, %2: memref<3xf32>, %3: memref<2xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %zero = arith.constant 0.000000e+00 : f32
    %sums = memref.alloca() : memref<2xf32>
    scf.for %at = %c0 to %c2 step %c1 {
      memref.store %zero, %sums[%at] : memref<2xf32>
    } {unroll}
    scf.for %tap = %c0 to %c3 step %c1 {
      %w = memref.load %2[%tap] : memref<3xf32>
      scf.for %at = %c0 to %c2 step %c1 {
        %i = arith.addi %tap, %at : index
        %x = memref.load %1[%i] : memref<4xf32>
        %p = arith.mulf %x, %w : f32
        %sum = memref.load %sums[%at] : memref<2xf32>
        %more = arith.addf %sum, %p : f32
        memref.store %more, %sums[%at] : memref<2xf32>
      } {unroll}
    } {unroll}
    scf.for %at = %c0 to %c2 step %c1 {
      %sum = memref.load %sums[%at] : memref<2xf32>
      memref.store %sum, %3[%at] : memref<2xf32>
    } {unroll}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<4xf32>, %1: tensor<3xf32>):
    %2 = tile.launch @window chunks 1 : i64 inplace [] (%0, %1) : (tensor<4xf32>, tensor<3xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2xf32>
  }
}
// -----
builtin.module {
  func.func private @window(%0: index, %1: memref<4xf32>, %2: memref<3xf32>, %3: memref<2xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %zero = arith.constant 0.000000e+00 : f32
    %4 = memref.load %1[%c0] : memref<4xf32>
    %5 = memref.load %2[%c0] : memref<3xf32>
    %6 = arith.mulf %4, %5 : f32
    %7 = arith.addf %zero, %6 : f32
    %8 = memref.load %1[%c1] : memref<4xf32>
    %9 = arith.mulf %8, %5 : f32
    %10 = arith.addf %zero, %9 : f32
    %11 = memref.load %2[%c1] : memref<3xf32>
    %12 = arith.mulf %8, %11 : f32
    %13 = arith.addf %7, %12 : f32
    %14 = memref.load %1[%c2] : memref<4xf32>
    %15 = arith.mulf %14, %11 : f32
    %16 = arith.addf %10, %15 : f32
    %17 = memref.load %2[%c2] : memref<3xf32>
    %18 = arith.mulf %14, %17 : f32
    %19 = arith.addf %13, %18 : f32
    %20 = memref.load %1[%c3] : memref<4xf32>
    %21 = arith.mulf %20, %17 : f32
    %22 = arith.addf %16, %21 : f32
    memref.store %19, %3[%c0] : memref<2xf32>
    memref.store %22, %3[%c1] : memref<2xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%0: tensor<4xf32>, %1: tensor<3xf32>):
    %2 = tile.launch @window chunks 1 : i64 inplace [](%0, %1) : (tensor<4xf32>, tensor<3xf32>) -> tensor<2xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<2xf32>
  }
}
