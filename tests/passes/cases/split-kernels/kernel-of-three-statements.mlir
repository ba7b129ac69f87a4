// Two statements per part; constants are copied, and each part has only the arguments that it uses.
// -p split-kernels{statements=2}

builtin.module {
  func.func private @move_5_f32_0(%chunk: index, %x: memref<1xf32>, %y: memref<2xf32>, %z: memref<5xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %a = memref.load %x[%c0] : memref<1xf32>
    memref.store %a, %z[%c0] : memref<5xf32>
    scf.for %i = %c0 to %c2 step %c1 {
      %b = memref.load %y[%i] : memref<2xf32>
      %j = arith.addi %i, %c1 : index
      memref.store %b, %z[%j] : memref<5xf32>
    }
    scf.for %i = %c0 to %c2 step %c1 {
      %b = memref.load %y[%i] : memref<2xf32>
      %c3 = arith.addi %c1, %c2 : index
      %j = arith.addi %i, %c3 : index
      memref.store %b, %z[%j] : memref<5xf32>
    }
    func.return
  }
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %0 = tile.buffer "input" at 0 : i64 named <"x"> : memref<1xf32>
    %1 = tile.buffer "input" at 0 : i64 named <"y"> : memref<2xf32>
    %2 = tile.buffer "output" at 0 : i64 named <"z"> : memref<5xf32>
    tile.call @move_5_f32_0 chunks 1 : i64(%0, %1, %2) : memref<1xf32>, memref<2xf32>, memref<5xf32>
  }
}
// -----
builtin.module {
  func.func private @move_5_f32_part_0(%0: index, %1: memref<1xf32>, %2: memref<2xf32>, %3: memref<5xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %a = memref.load %1[%c0] : memref<1xf32>
    memref.store %a, %3[%c0] : memref<5xf32>
    scf.for %i = %c0 to %c2 step %c1 {
      %b = memref.load %2[%i] : memref<2xf32>
      %j = arith.addi %i, %c1 : index
      memref.store %b, %3[%j] : memref<5xf32>
    }
    func.return
  }
  func.func private @move_5_f32_part_1(%0: index, %1: memref<2xf32>, %2: memref<5xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    scf.for %i = %c0 to %c2 step %c1 {
      %b = memref.load %1[%i] : memref<2xf32>
      %c3 = arith.addi %c1, %c2 : index
      %j = arith.addi %i, %c3 : index
      memref.store %b, %2[%j] : memref<5xf32>
    }
    func.return
  }
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %0 = tile.buffer "input" at 0 : i64 named <"x"> : memref<1xf32>
    %1 = tile.buffer "input" at 0 : i64 named <"y"> : memref<2xf32>
    %2 = tile.buffer "output" at 0 : i64 named <"z"> : memref<5xf32>
    tile.call @move_5_f32_part_0 chunks 1 : i64(%0, %1, %2) : memref<1xf32>, memref<2xf32>, memref<5xf32>
    tile.call @move_5_f32_part_1 chunks 1 : i64(%1, %2) : memref<2xf32>, memref<5xf32>
  }
}
