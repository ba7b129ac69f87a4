// Two kernels with equal bodies become two launches of one function.

builtin.module {
  pg.graph @main inputs [#pg.bytes<"in">] {
  ^bb0(%in: tensor<4xf32>):
    %a = tile.kernel chunks 1 inplace [] ins(%in, %in : tensor<4xf32>, tensor<4xf32>) {
    ^bb0(%chunk: index, %x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>):
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      scf.for %i = %c0 to %c4 step %c1 {
        %e = memref.load %x[%i] : memref<4xf32>
        %f = memref.load %y[%i] : memref<4xf32>
        %s = arith.addf %e, %f : f32
        memref.store %s, %z[%i] : memref<4xf32>
      }
    } -> tensor<4xf32>
    %b = tile.kernel chunks 1 inplace [0, 0] ins(%a, %in : tensor<4xf32>, tensor<4xf32>) {
    ^bb0(%chunk: index, %x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>):
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      scf.for %i = %c0 to %c4 step %c1 {
        %e = memref.load %x[%i] : memref<4xf32>
        %f = memref.load %y[%i] : memref<4xf32>
        %s = arith.addf %e, %f : f32
        memref.store %s, %z[%i] : memref<4xf32>
      }
    } -> tensor<4xf32>
    pg.return [#pg.bytes<"y">], %b : tensor<4xf32>
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
    %a = tile.launch @addf_4_f32_0 chunks 1 : i64 inplace [](%in, %in) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %b = tile.launch @addf_4_f32_0 chunks 1 : i64 inplace [0, 0](%a, %in) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    pg.return [#pg.bytes<"y">], %b : tensor<4xf32>
  }
}
