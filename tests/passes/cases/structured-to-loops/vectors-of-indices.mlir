// A body that depends on its own index is vectorized: each lane has the index of its element.
// -p structured-to-loops{vector_bytes=32}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xf64>):
    %y = tile.map ins(%x : tensor<8xf64>) domain [8] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%a: f64):
      %i = tile.index 0 : i64
      %n = arith.index_cast %i : index to i64
      %f = arith.sitofp %n : i64 to f64
      %s = arith.addf %a, %f : f64
      tile.yield %s : f64
    } -> tensor<8xf64>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf64>
  }
}
// -----
builtin.module {
  func.func private @addf_8_f64_0(%0: index, %1: memref<8xf64>, %2: memref<8xf64>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 8 : index
    %5 = arith.constant 4 : index
    %6 = arith.constant dense<[0, 1, 2, 3]> : vector<4xindex>
    scf.for %7 = %3 to %4 step %5 {
      %8 = vector.load %1[%7] : memref<8xf64>, vector<4xf64>
      %9 = vector.broadcast %7 : index to vector<4xindex>
      %10 = arith.addi %9, %6 : vector<4xindex>
      %11 = tile.convert "arith.index_cast" %10 : vector<4xindex> -> vector<4xi64>
      %12 = tile.convert "arith.sitofp" %11 : vector<4xi64> -> vector<4xf64>
      %13 = arith.addf %8, %12 : vector<4xf64>
      vector.store %13, %2[%7] : memref<8xf64>, vector<4xf64>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xf64>):
    %y = tile.launch @addf_8_f64_0 chunks 1 : i64 inplace [0, 0](%x) : (tensor<8xf64>) -> tensor<8xf64>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf64>
  }
}
