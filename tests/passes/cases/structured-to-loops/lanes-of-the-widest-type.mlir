// The widest type in the body determines the number of lanes: here four, of f32.
// -p structured-to-loops{vector_bytes=16}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xf16>):
    %y = tile.map ins(%x : tensor<8xf16>) domain [8] maps [affine_map<(d0) -> (d0)>] {
    ^bb0(%a: f16):
      %b = arith.extf %a : f16 to f32
      %c = math.exp %b : f32
      %d = arith.truncf %c : f32 to f16
      tile.yield %d : f16
    } -> tensor<8xf16>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf16>
  }
}
// -----
builtin.module {
  func.func private @extf_exp_truncf_8_f16_0(%0: index, %1: memref<8xf16>, %2: memref<8xf16>) {
    %3 = arith.constant 0 : index
    %4 = vector.load %1[%3] : memref<8xf16>, vector<4xf16>
    %5 = arith.extf %4 : vector<4xf16> to vector<4xf32>
    %6 = math.exp %5 : vector<4xf32>
    %7 = arith.truncf %6 : vector<4xf32> to vector<4xf16>
    %8 = arith.constant 4 : index
    %9 = vector.load %1[%8] : memref<8xf16>, vector<4xf16>
    %10 = arith.extf %9 : vector<4xf16> to vector<4xf32>
    %11 = math.exp %10 : vector<4xf32>
    %12 = arith.truncf %11 : vector<4xf32> to vector<4xf16>
    vector.store %7, %2[%3] : memref<8xf16>, vector<4xf16>
    vector.store %12, %2[%8] : memref<8xf16>, vector<4xf16>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<8xf16>):
    %y = tile.launch @extf_exp_truncf_8_f16_0 chunks 1 : i64 inplace [0, 0](%x) : (tensor<8xf16>) -> tensor<8xf16>
    pg.return [#pg.bytes<"y">], %y : tensor<8xf16>
  }
}
