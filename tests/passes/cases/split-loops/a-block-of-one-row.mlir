// Three rows in blocks of at most two are 2 + 1: one row needs no loop.
// -p split-loops
builtin.module {
  func.func private @product(%0: index, %1: memref<9xf32>, %2: memref<12xf32>, %3: memref<12xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %all = arith.constant 3 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %first = %c0 to %all step %c2 {
      %left = arith.subi %all, %first : index
      %rows = arith.minsi %c2, %left : index
      %sums = memref.alloca() : memref<8xf32>
      %a = arith.muli %first, %c3 : index
      %z = arith.muli %first, %c4 : index
      scf.for %row = %c0 to %rows step %c1 {
        %r = arith.muli %row, %c4 : index
        %b = arith.muli %row, %c3 : index
        %c = arith.addi %a, %b : index
        scf.for %lane = %c0 to %c4 step %c1 {
          %s = arith.addi %r, %lane : index
          memref.store %zero, %sums[%s] : memref<8xf32>
          scf.for %k = %c0 to %c3 step %c1 {
            %at = arith.addi %c, %k : index
            %x = memref.load %1[%at] : memref<9xf32>
            %d = arith.muli %k, %c4 : index
            %p = arith.addi %d, %lane : index
            %y = memref.load %2[%p] : memref<12xf32>
            %sum = memref.load %sums[%s] : memref<8xf32>
            %product = arith.mulf %x, %y : f32
            %more = arith.addf %sum, %product : f32
            memref.store %more, %sums[%s] : memref<8xf32>
          }
        } {interchange, vectorize = array<i64: 4>}
      } {unroll, interchange}
      scf.for %row = %c0 to %rows step %c1 {
        %r = arith.muli %row, %c4 : index
        %o = arith.addi %z, %r : index
        scf.for %lane = %c0 to %c4 step %c1 {
          %s = arith.addi %r, %lane : index
          %sum = memref.load %sums[%s] : memref<8xf32>
          %t = arith.addi %o, %lane : index
          memref.store %sum, %3[%t] : memref<12xf32>
        } {vectorize = array<i64: 4>}
      } {unroll}
    } {split}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<3x3xf32>, %1: tensor<3x4xf32>):
    %2 = tile.launch @product chunks 1 : i64 inplace [](%0, %1) : (tensor<3x3xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<3x4xf32>
  }
}
// -----
builtin.module {
  func.func private @product(%0: index, %1: memref<9xf32>, %2: memref<12xf32>, %3: memref<12xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %zero = arith.constant 0.000000e+00 : f32
    %4 = memref.alloca() : memref<8xf32>
    scf.for %5 = %c0 to %c2 step %c1 {
      %6 = arith.muli %5, %c4 : index
      %7 = arith.muli %5, %c3 : index
      scf.for %8 = %c0 to %c4 step %c1 {
        %9 = arith.addi %6, %8 : index
        memref.store %zero, %4[%9] : memref<8xf32>
        scf.for %10 = %c0 to %c3 step %c1 {
          %11 = arith.addi %7, %10 : index
          %12 = memref.load %1[%11] : memref<9xf32>
          %13 = arith.muli %10, %c4 : index
          %14 = arith.addi %8, %13 : index
          %15 = memref.load %2[%14] : memref<12xf32>
          %16 = memref.load %4[%9] : memref<8xf32>
          %17 = arith.mulf %12, %15 : f32
          %18 = arith.addf %16, %17 : f32
          memref.store %18, %4[%9] : memref<8xf32>
        }
      } {interchange, vectorize = array<i64: 4>}
    } {unroll, interchange}
    scf.for %19 = %c0 to %c2 step %c1 {
      %20 = arith.muli %19, %c4 : index
      scf.for %21 = %c0 to %c4 step %c1 {
        %22 = arith.addi %20, %21 : index
        %23 = memref.load %4[%22] : memref<8xf32>
        memref.store %23, %3[%22] : memref<12xf32>
      } {vectorize = array<i64: 4>}
    } {unroll}
    %24 = memref.alloca() : memref<4xf32>
    %25 = arith.constant 6 : index
    scf.for %26 = %c0 to %c4 step %c1 {
      memref.store %zero, %24[%26] : memref<4xf32>
      scf.for %27 = %c0 to %c3 step %c1 {
        %28 = arith.addi %27, %25 : index
        %29 = memref.load %1[%28] : memref<9xf32>
        %30 = arith.muli %27, %c4 : index
        %31 = arith.addi %26, %30 : index
        %32 = memref.load %2[%31] : memref<12xf32>
        %33 = memref.load %24[%26] : memref<4xf32>
        %34 = arith.mulf %29, %32 : f32
        %35 = arith.addf %33, %34 : f32
        memref.store %35, %24[%26] : memref<4xf32>
      }
    } {interchange, vectorize = array<i64: 4>}
    %36 = arith.constant 8 : index
    scf.for %37 = %c0 to %c4 step %c1 {
      %38 = memref.load %24[%37] : memref<4xf32>
      %39 = arith.addi %37, %36 : index
      memref.store %38, %3[%39] : memref<12xf32>
    } {vectorize = array<i64: 4>}
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%0: tensor<3x3xf32>, %1: tensor<3x4xf32>):
    %2 = tile.launch @product chunks 1 : i64 inplace [](%0, %1) : (tensor<3x3xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    pg.return [#pg.bytes<"z">], %2 : tensor<3x4xf32>
  }
}
