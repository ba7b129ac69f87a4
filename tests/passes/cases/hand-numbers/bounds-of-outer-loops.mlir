// The bound of a loop around a long one, and its stride, become arguments; the bound of the long loop does not.
// -p hand-numbers{least=0}

builtin.module {
  func.func private @addf_3_f32_0(%chunk: index, %x: memref<60xf32>, %y: memref<3xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c20 = arith.constant 20 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %i = %c0 to %c3 step %c1 {
      %start = arith.muli %i, %c20 : index
      %sum = scf.for %j = %c0 to %c20 step %c1 iter_args(%s = %zero) -> (f32) {
        %at = arith.addi %start, %j : index
        %a = memref.load %x[%at] : memref<60xf32>
        %t = arith.addf %s, %a : f32
        scf.yield %t : f32
      }
      memref.store %sum, %y[%i] : memref<3xf32>
    }
    func.return
  }
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %0 = tile.buffer "input" at 0 : i64 named <"x"> : memref<60xf32>
    %1 = tile.buffer "output" at 0 : i64 named <"y"> : memref<3xf32>
    tile.call @addf_3_f32_0 chunks 1 : i64(%0, %1) : memref<60xf32>, memref<3xf32>
  }
}
// -----
builtin.module {
  func.func private @addf_3_f32_0(%chunk: index, %x: memref<60xf32>, %y: memref<3xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c20 = arith.constant 20 : index
    %zero = arith.constant 0.000000e+00 : f32
    scf.for %i = %c0 to %c3 step %c1 {
      %start = arith.muli %i, %c20 {handed = #pg.ints[1]} : index
      %sum = scf.for %j = %c0 to %c20 step %c1 iter_args(%s = %zero) -> (f32) {
        %at = arith.addi %start, %j : index
        %a = memref.load %x[%at] : memref<60xf32>
        %t = arith.addf %s, %a : f32
        scf.yield %t : f32
      }
      memref.store %sum, %y[%i] : memref<3xf32>
    } {handed = #pg.ints[1]}
    func.return
  }
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %0 = tile.buffer "input" at 0 : i64 named <"x"> : memref<60xf32>
    %1 = tile.buffer "output" at 0 : i64 named <"y"> : memref<3xf32>
    tile.call @addf_3_f32_0 chunks 1 : i64(%0, %1) : memref<60xf32>, memref<3xf32>
  }
}
