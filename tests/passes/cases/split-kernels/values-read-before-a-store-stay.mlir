// The second store needs a value read before the first one: the kernel stays unchanged.
// -p split-kernels{statements=1}

builtin.module {
  func.func private @exchange_1_f32_0(%chunk: index, %x: memref<1xf32>, %y: memref<1xf32>) {
    %c0 = arith.constant 0 : index
    %a = memref.load %x[%c0] : memref<1xf32>
    %b = memref.load %y[%c0] : memref<1xf32>
    memref.store %b, %x[%c0] : memref<1xf32>
    memref.store %a, %y[%c0] : memref<1xf32>
    func.return
  }
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %0 = tile.buffer "variable" at 0 : i64 named <"x"> : memref<1xf32>
    %1 = tile.buffer "variable" at 0 : i64 named <"y"> : memref<1xf32>
    tile.call @exchange_1_f32_0 chunks 1 : i64(%0, %1) : memref<1xf32>, memref<1xf32>
  }
}
// -----
builtin.module {
  func.func private @exchange_1_f32_0(%chunk: index, %x: memref<1xf32>, %y: memref<1xf32>) {
    %c0 = arith.constant 0 : index
    %a = memref.load %x[%c0] : memref<1xf32>
    %b = memref.load %y[%c0] : memref<1xf32>
    memref.store %b, %x[%c0] : memref<1xf32>
    memref.store %a, %y[%c0] : memref<1xf32>
    func.return
  }
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %0 = tile.buffer "variable" at 0 : i64 named <"x"> : memref<1xf32>
    %1 = tile.buffer "variable" at 0 : i64 named <"y"> : memref<1xf32>
    tile.call @exchange_1_f32_0 chunks 1 : i64(%0, %1) : memref<1xf32>, memref<1xf32>
  }
}
