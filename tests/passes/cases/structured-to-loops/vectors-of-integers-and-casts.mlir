// A comparison of bytes selects floats: both have as many lanes as a register has floats.
// -p structured-to-loops{vector_bytes=16}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xi8>):
    %y = tile.map ins(%x : tensor<8xi8>) domain [8] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%a: i8):
      %zero = arith.constant 0 : i8
      %less = arith.cmpi slt, %a, %zero : i8
      %number = arith.sitofp %a : i8 to f32
      %other = arith.constant 1.000000e+00 : f32
      %chosen = arith.select %less, %number, %other : f32
      tile.yield %chosen : f32
    } -> tensor<8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf32>
  }
}
// -----
builtin.module {
  func.func private @move_8_f32_0(%0: index, %1: memref<8xi8>, %2: memref<8xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 8 : index
    %5 = arith.constant 4 : index
    %6 = arith.constant 0 : i8
    %7 = vector.broadcast %6 : i8 to vector<4xi8>
    %8 = arith.constant 1.000000e+00 : f32
    %9 = vector.broadcast %8 : f32 to vector<4xf32>
    scf.for %10 = %3 to %4 step %5 {
      %11 = vector.load %1[%10] : memref<8xi8>, vector<4xi8>
      %12 = tile.compare 2 : i64 %11, %7 : vector<4xi8> -> vector<4xi1>
      %13 = tile.convert "arith.sitofp" %11 : vector<4xi8> -> vector<4xf32>
      %14 = tile.select %12, %13, %9 : vector<4xi1>, vector<4xf32>
      vector.store %14, %2[%10] : memref<8xf32>, vector<4xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xi8>):
    %y = tile.launch @move_8_f32_0 chunks 1 : i64 inplace [](%x) : (tensor<8xi8>) -> tensor<8xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf32>
  }
}
