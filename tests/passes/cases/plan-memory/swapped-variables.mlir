// Every update sees the state before the step, so one old value is saved first.

builtin.module {
  func.func private @add(%chunk: index, %x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    scf.for %i = %c0 to %c4 step %c1 {
      %e = memref.load %x[%i] : memref<4xf32>
      %f = memref.load %y[%i] : memref<4xf32>
      %s = arith.addf %e, %f : f32
      memref.store %s, %z[%i] : memref<4xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"in">] {
  ^bb0(%in: tensor<4xf32>):
    %u = pg.variable #pg.bytes<"u"> = #pg.data<"0000803f000000400000404000008040" : tensor<4xf32>>
    %v = pg.variable #pg.bytes<"v"> = #pg.data<"0000803f000000400000404000008040" : tensor<4xf32>>
    pg.update <"u">, %v : tensor<4xf32>
    pg.update <"v">, %u : tensor<4xf32>
    pg.return [#pg.bytes<"y">], %u : tensor<4xf32>
  }
}
// -----
builtin.module {
  func.func private @copy_4_f32(%0: index, %1: memref<4xf32>, %2: memref<4xf32>) {
    "memref.copy"(%1, %2) : (memref<4xf32>, memref<4xf32>) -> ()
    func.return
  }
  func.func private @add(%chunk: index, %x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    scf.for %i = %c0 to %c4 step %c1 {
      %e = memref.load %x[%i] : memref<4xf32>
      %f = memref.load %y[%i] : memref<4xf32>
      %s = arith.addf %e, %f : f32
      memref.store %s, %z[%i] : memref<4xf32>
    }
    func.return
  }
  tile.program @main arena 128 : i64 persistent 0 : i64 lower_bound 128 : i64 prepare {
  ^bb0:
  } body {
    %in = tile.buffer "input" at 0 : i64 named <"in"> : memref<4xf32>
    %u = tile.buffer "variable" at 0 : i64 named <"u"> holding #pg.data<"0000803f000000400000404000008040" : tensor<4xf32>> : memref<4xf32>
    %v = tile.buffer "variable" at 0 : i64 named <"v"> holding #pg.data<"0000803f000000400000404000008040" : tensor<4xf32>> : memref<4xf32>
    %y = tile.buffer "output" at 0 : i64 named <"y"> : memref<4xf32>
    %arena = tile.buffer "arena" at 0 : i64 named <""> : memref<4xf32>
    %arena_1 = tile.buffer "arena" at 64 : i64 named <""> : memref<4xf32>
    tile.call @copy_4_f32 chunks 1 : i64(%u, %y) : memref<4xf32>, memref<4xf32>
    tile.call @copy_4_f32 chunks 1 : i64(%v, %arena) : memref<4xf32>, memref<4xf32>
    tile.call @copy_4_f32 chunks 1 : i64(%u, %arena_1) : memref<4xf32>, memref<4xf32>
    tile.call @copy_4_f32 chunks 1 : i64(%arena, %u) : memref<4xf32>, memref<4xf32>
    tile.call @copy_4_f32 chunks 1 : i64(%arena_1, %v) : memref<4xf32>, memref<4xf32>
  }
}
