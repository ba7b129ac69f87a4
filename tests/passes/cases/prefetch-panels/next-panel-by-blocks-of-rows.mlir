// Two blocks of rows read each panel of 4 x 8: each block prefetches one half of the next panel, 4 floats a step.
builtin.module {
  func.func private @product(%chunk: index, %x: memref<16xf32>, %panels: memref<64xf32>, %y: memref<64xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %zero = arith.constant dense<0.0> : vector<8xf32>
    scf.for %panel = %c0 to %c2 step %c1 {
      %start = arith.muli %panel, %c32 : index
      %column = arith.muli %panel, %c8 : index
      scf.for %row = %c0 to %c4 step %c2 {
        %x_row = arith.muli %row, %c4 : index
        %sum, %sum_1 = scf.for %k = %c0 to %c4 step %c1 iter_args(%old = %zero, %old_1 = %zero) -> (vector<8xf32>, vector<8xf32>) {
          %x_at = arith.addi %x_row, %k : index
          %a = memref.load %x[%x_at] : memref<16xf32>
          %a_lanes = vector.broadcast %a : f32 to vector<8xf32>
          %k_at = arith.muli %k, %c8 : index
          %at = arith.addi %start, %k_at : index
          %b = vector.load %panels[%at] : memref<64xf32>, vector<8xf32>
          %new = vector.fma %a_lanes, %b, %old : vector<8xf32>
          %x_below = arith.addi %x_at, %c4 : index
          %a_1 = memref.load %x[%x_below] : memref<16xf32>
          %a_lanes_1 = vector.broadcast %a_1 : f32 to vector<8xf32>
          %new_1 = vector.fma %a_lanes_1, %b, %old_1 : vector<8xf32>
          scf.yield %new, %new_1 : vector<8xf32>, vector<8xf32>
        } {prefetch = #tile.prefetch_next<argument 2, elements 32, lanes 8, share 4, lines 1, loops 1, again [8]>}
        %y_row = arith.muli %row, %c16 : index
        %y_at = arith.addi %column, %y_row : index
        vector.store %sum, %y[%y_at] : memref<64xf32>, vector<8xf32>
        %y_below = arith.addi %y_at, %c16 : index
        vector.store %sum_1, %y[%y_below] : memref<64xf32>, vector<8xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"panels">] {
  ^bb0(%x: tensor<16xf32>, %panels: tensor<64xf32>):
    %y = tile.launch @product chunks 1 : i64 inplace [](%x, %panels) : (tensor<16xf32>, tensor<64xf32>) -> tensor<64xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<64xf32>
  }
}
// -----
builtin.module {
  func.func private @product(%chunk: index, %x: memref<16xf32>, %panels: memref<64xf32>, %y: memref<64xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %zero = arith.constant dense<0.000000e+00> : vector<8xf32>
    scf.for %panel = %c0 to %c2 step %c1 {
      %start = arith.muli %panel, %c32 : index
      %column = arith.muli %panel, %c8 : index
      scf.for %row = %c0 to %c4 step %c2 {
        %x_row = arith.muli %row, %c4 : index
        %0 = arith.muli %row, %c8 : index
        %1 = arith.addi %start, %0 : index
        %sum, %sum_1 = scf.for %k = %c0 to %c4 step %c1 iter_args(%old = %zero, %old_1 = %zero) -> (vector<8xf32>, vector<8xf32>) {
          %x_at = arith.addi %x_row, %k : index
          %a = memref.load %x[%x_at] : memref<16xf32>
          %a_lanes = vector.broadcast %a : f32 to vector<8xf32>
          %k_at = arith.muli %k, %c8 : index
          %at = arith.addi %start, %k_at : index
          %2 = arith.muli %k, %c4 : index
          %3 = arith.addi %1, %2 : index
          %4 = arith.addi %3, %c32 : index
          tile.prefetch %panels[%4] : memref<64xf32>
          %b = vector.load %panels[%at] : memref<64xf32>, vector<8xf32>
          %new = vector.fma %a_lanes, %b, %old : vector<8xf32>
          %x_below = arith.addi %x_at, %c4 : index
          %a_1 = memref.load %x[%x_below] : memref<16xf32>
          %a_lanes_1 = vector.broadcast %a_1 : f32 to vector<8xf32>
          %new_1 = vector.fma %a_lanes_1, %b, %old_1 : vector<8xf32>
          scf.yield %new, %new_1 : vector<8xf32>, vector<8xf32>
        }
        %y_row = arith.muli %row, %c16 : index
        %y_at = arith.addi %column, %y_row : index
        vector.store %sum, %y[%y_at] : memref<64xf32>, vector<8xf32>
        %y_below = arith.addi %y_at, %c16 : index
        vector.store %sum_1, %y[%y_below] : memref<64xf32>, vector<8xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"panels">] {
  ^bb0(%x: tensor<16xf32>, %panels: tensor<64xf32>):
    %y = tile.launch @product chunks 1 : i64 inplace [](%x, %panels) : (tensor<16xf32>, tensor<64xf32>) -> tensor<64xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<64xf32>
  }
}
