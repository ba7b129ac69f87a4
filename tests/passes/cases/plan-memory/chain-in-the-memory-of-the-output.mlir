// A chain whose last value is an output runs in the memory of the output.

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
    %k = pg.constant #pg.data<"0000803f000000400000404000008040" : tensor<4xf32>>
    %a = tile.launch @add chunks 1 inplace [] (%in, %k) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %b = tile.launch @add chunks 1 inplace [0, 0] (%a, %in) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"y">], %b : tensor<4xf32>
  }
}
// -----
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
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %in = tile.buffer "input" at 0 : i64 named <"in"> : memref<4xf32>
    %y = tile.buffer "output" at 0 : i64 named <"y"> : memref<4xf32>
    %k = tile.buffer "constant" at 0 : i64 named <""> holding #pg.data<"0000803f000000400000404000008040" : tensor<4xf32>> : memref<4xf32>
    tile.call @add chunks 1 : i64(%in, %k, %y) : memref<4xf32>, memref<4xf32>, memref<4xf32>
    tile.call @add chunks 1 : i64(%y, %in, %y) : memref<4xf32>, memref<4xf32>, memref<4xf32>
  }
}
