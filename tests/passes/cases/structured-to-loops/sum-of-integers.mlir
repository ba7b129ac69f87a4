// Sums of integers may be reassociated: lanes have partial sums.
// -p structured-to-loops{vector_bytes=16}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xi32>):
    %y = tile.reduce ins(%x : tensor<8xi32>) domain [8] parallel 0 : i64 maps [affine_map<(d0) -> (d0)>] epilogue_maps [] initial [0 : i32] {
    ^bb0(%a: i32, %total: i32):
      %next = arith.addi %total, %a : i32
      tile.yield %next : i32
    } epilogue {
    ^bb0(%total: i32):
      tile.yield %total : i32
    } -> tensor<i32>
    pg.return [#pg.bytes<"y">], %y : tensor<i32>
  }
}
// -----
builtin.module {
  func.func private @addi_1_i32_0(%0: index, %1: memref<8xi32>, %2: memref<1xi32>) {
    %3 = arith.constant 0 : i32
    %4 = vector.broadcast %3 : i32 to vector<4xi32>
    %5 = arith.constant 0 : index
    %6 = vector.load %1[%5] : memref<8xi32>, vector<4xi32>
    %7 = arith.addi %4, %6 : vector<4xi32>
    %8 = arith.constant 4 : index
    %9 = vector.load %1[%8] : memref<8xi32>, vector<4xi32>
    %10 = arith.addi %4, %9 : vector<4xi32>
    %11 = arith.addi %7, %10 : vector<4xi32>
    %12 = vector.shuffle %11, %11 [2, 3, 0, 1] : vector<4xi32>, vector<4xi32>
    %13 = arith.addi %11, %12 : vector<4xi32>
    %14 = vector.shuffle %13, %13 [1, 0, 3, 2] : vector<4xi32>, vector<4xi32>
    %15 = arith.addi %13, %14 : vector<4xi32>
    %16 = vector.extract %15[0] : i32 from vector<4xi32>
    memref.store %16, %2[%5] : memref<1xi32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xi32>):
    %y = tile.launch @addi_1_i32_0 chunks 1 : i64 inplace [](%x) : (tensor<8xi32>) -> tensor<i32>
    pg.return [#pg.bytes<"y">], %y : tensor<i32>
  }
}
