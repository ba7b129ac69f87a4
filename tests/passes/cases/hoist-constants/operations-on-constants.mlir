// Operations on constants only move into pg.prepare; the others read its result.

builtin.module {
  func.func private @addf_4_f32_0(%chunk: index, %x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) {
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
    %packed = tile.launch @addf_4_f32_0 chunks 1 : i64 inplace [](%k, %k) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %sum = tile.launch @addf_4_f32_0 chunks 1 : i64 inplace [](%in, %packed) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"y">], %sum : tensor<4xf32>
  }
}
// -----
builtin.module {
  func.func private @addf_4_f32_0(%chunk: index, %x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) {
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
    %packed = pg.prepare {
      %packed_1 = tile.launch @addf_4_f32_0 chunks 1 : i64 inplace [](%k, %k) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      pg.yield %packed_1 : tensor<4xf32>
    } : tensor<4xf32>
    %sum = tile.launch @addf_4_f32_0 chunks 1 : i64 inplace [](%in, %packed) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"y">], %sum : tensor<4xf32>
  }
}
