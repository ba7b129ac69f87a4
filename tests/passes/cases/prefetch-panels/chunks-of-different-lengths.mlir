// Chunks of 4 and 2 terms: the next one begins where the current one ends, and is read twice.
builtin.module {
  func.func private @sums(%chunk: index, %panel: memref<48xf32>, %y: memref<32xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c6 = arith.constant 6 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %zero = arith.constant dense<0.0> : vector<8xf32>
    scf.for %number = %c0 to %c2 step %c1 {
      %first = arith.muli %number, %c4 : index
      %after = arith.addi %first, %c4 : index
      %end = arith.minsi %after, %c6 : index
      %target = arith.muli %number, %c16 : index
      scf.for %row = %c0 to %c2 step %c1 {
        %sum = scf.for %k = %first to %end step %c1 iter_args(%old = %zero) -> (vector<8xf32>) {
          %at = arith.muli %k, %c8 : index
          %b = vector.load %panel[%at] : memref<48xf32>, vector<8xf32>
          %new = arith.addf %old, %b : vector<8xf32>
          scf.yield %new : vector<8xf32>
        } {prefetch = #tile.prefetch_next<argument 1, elements 32, lanes 8, share 4, lines 1, loops 1, again [16]>}
        %row_at = arith.muli %row, %c8 : index
        %y_at = arith.addi %target, %row_at : index
        vector.store %sum, %y[%y_at] : memref<32xf32>, vector<8xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"panel">] {
  ^bb0(%panel: tensor<48xf32>):
    %y = tile.launch @sums chunks 1 : i64 inplace [](%panel) : (tensor<48xf32>) -> tensor<32xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<32xf32>
  }
}
// -----
builtin.module {
  func.func private @sums(%chunk: index, %panel: memref<48xf32>, %y: memref<32xf32>) {
    %0 = arith.constant -16 : index
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c6 = arith.constant 6 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %zero = arith.constant dense<0.000000e+00> : vector<8xf32>
    scf.for %number = %c0 to %c2 step %c1 {
      %first = arith.muli %number, %c4 : index
      %after = arith.addi %first, %c4 : index
      %end = arith.minsi %after, %c6 : index
      %target = arith.muli %number, %c16 : index
      %1 = arith.muli %end, %c8 : index
      %2 = arith.muli %number, %0 : index
      %3 = arith.addi %1, %2 : index
      scf.for %row = %c0 to %c2 step %c1 {
        %4 = arith.muli %row, %c16 : index
        %5 = arith.addi %3, %4 : index
        %sum = scf.for %k = %first to %end step %c1 iter_args(%old = %zero) -> (vector<8xf32>) {
          %at = arith.muli %k, %c8 : index
          %6 = arith.muli %k, %c4 : index
          %7 = arith.addi %5, %6 : index
          tile.prefetch %panel[%7] : memref<48xf32>
          %b = vector.load %panel[%at] : memref<48xf32>, vector<8xf32>
          %new = arith.addf %old, %b : vector<8xf32>
          scf.yield %new : vector<8xf32>
        }
        %row_at = arith.muli %row, %c8 : index
        %y_at = arith.addi %target, %row_at : index
        vector.store %sum, %y[%y_at] : memref<32xf32>, vector<8xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"panel">] {
  ^bb0(%panel: tensor<48xf32>):
    %y = tile.launch @sums chunks 1 : i64 inplace [](%panel) : (tensor<48xf32>) -> tensor<32xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<32xf32>
  }
}
