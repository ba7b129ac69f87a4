// Loops without a recipe stay unchanged.
builtin.module {
  func.func private @sum(%chunk: index, %panel: memref<64xf32>, %result: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %zero = arith.constant dense<0.0> : vector<8xf32>
    %sum = scf.for %k = %c0 to %c4 step %c1 iter_args(%old = %zero) -> (vector<8xf32>) {
      %at = arith.muli %k, %c16 : index
      %low = vector.load %panel[%at] : memref<64xf32>, vector<8xf32>
      %next = arith.addi %at, %c8 : index
      %high = vector.load %panel[%next] : memref<64xf32>, vector<8xf32>
      %both = arith.addf %low, %high : vector<8xf32>
      %new = arith.addf %old, %both : vector<8xf32>
      scf.yield %new : vector<8xf32>
    }
    vector.store %sum, %result[%c0] : memref<8xf32>, vector<8xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"panel">] {
  ^bb0(%panel: tensor<64xf32>):
    %result = tile.launch @sum chunks 1 : i64 inplace [](%panel) : (tensor<64xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"result">], %result : tensor<8xf32>
  }
}
// -----
builtin.module {
  func.func private @sum(%chunk: index, %panel: memref<64xf32>, %result: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %zero = arith.constant dense<0.000000e+00> : vector<8xf32>
    %sum = scf.for %k = %c0 to %c4 step %c1 iter_args(%old = %zero) -> (vector<8xf32>) {
      %at = arith.muli %k, %c16 : index
      %low = vector.load %panel[%at] : memref<64xf32>, vector<8xf32>
      %next = arith.addi %at, %c8 : index
      %high = vector.load %panel[%next] : memref<64xf32>, vector<8xf32>
      %both = arith.addf %low, %high : vector<8xf32>
      %new = arith.addf %old, %both : vector<8xf32>
      scf.yield %new : vector<8xf32>
    }
    vector.store %sum, %result[%c0] : memref<8xf32>, vector<8xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"panel">] {
  ^bb0(%panel: tensor<64xf32>):
    %result = tile.launch @sum chunks 1 : i64 inplace [](%panel) : (tensor<64xf32>) -> tensor<8xf32>
    pg.return [#pg.bytes<"result">], %result : tensor<8xf32>
  }
}
