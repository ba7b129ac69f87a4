// Equal loops over parts of a larger tensor are one kernel, whatever the offsets of the parts.
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0, (d1 + 4))>
#layout = #tile.layout<#map, #pg.ints[2, 8], part 1>
#layout1 = #tile.layout<#map1, #pg.ints[2, 8], part 1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<2x4xf32>, %1: tensor<2x4xf32>):
    %2 = tile.map ins(%0 : tensor<2x4xf32>) domain [2, 4] maps [#map] {
    ^bb0(%3: f32):
      %4 = arith.negf %3 : f32
      tile.yield %4 : f32
    } -> tensor<2x4xf32, #layout>
    %5 = tile.map ins(%1 : tensor<2x4xf32>) domain [2, 4] maps [#map] {
    ^bb0(%6: f32):
      %7 = arith.negf %6 : f32
      tile.yield %7 : f32
    } -> tensor<2x4xf32, #layout1>
    %8 = tile.assemble(%2, %5 : tensor<2x4xf32, #layout>, tensor<2x4xf32, #layout1>) offsets [0, 0, 0, 4] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<2x8xf32>
    %9 = tile.map ins(%8 : tensor<2x8xf32>) domain [8, 2] maps [affine_map<(d0, d1) -> (d1, d0)>] {
    ^bb0(%10: f32):
      tile.yield %10 : f32
    } -> tensor<8x2xf32>
    pg.return [#pg.bytes<"y">], %9 : tensor<8x2xf32>
  }
}
// -----
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0, (d1 + 4))>
#layout = #tile.layout<#map, #pg.ints[2, 8], part 1>
#layout1 = #tile.layout<#map1, #pg.ints[2, 8], part 1>
builtin.module {
  func.func private @negf_12_f32_0(%0: index, %1: memref<8xf32>, %2: memref<12xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 2 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 4 : index
    %7 = arith.constant 8 : index
    scf.for %8 = %3 to %4 step %5 {
      %9 = arith.muli %8, %6 : index
      %10 = vector.load %1[%9] : memref<8xf32>, vector<4xf32>
      %11 = arith.negf %10 : vector<4xf32>
      %12 = arith.muli %8, %7 : index
      vector.store %11, %2[%12] : memref<12xf32>, vector<4xf32>
    }
    func.return
  }
  func.func private @move_16_f32_0(%0: index, %1: memref<16xf32>, %2: memref<16xf32>) {
    %3 = arith.constant 0 : index
    %4 = vector.load %1[%3] : memref<16xf32>, vector<8xf32>
    %5 = arith.constant 8 : index
    %6 = vector.load %1[%5] : memref<16xf32>, vector<8xf32>
    %7 = vector.shuffle %4, %6 [0, 8, 1, 9, 2, 10, 3, 11] : vector<8xf32>, vector<8xf32>
    %8 = vector.shuffle %4, %6 [4, 12, 5, 13, 6, 14, 7, 15] : vector<8xf32>, vector<8xf32>
    vector.store %7, %2[%3] : memref<16xf32>, vector<8xf32>
    vector.store %8, %2[%5] : memref<16xf32>, vector<8xf32>
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x0">, #pg.bytes<"x1">] {
  ^bb0(%0: tensor<2x4xf32>, %1: tensor<2x4xf32>):
    %2 = tile.launch @negf_12_f32_0 chunks 1 : i64 inplace [](%0) : (tensor<2x4xf32>) -> tensor<2x4xf32, #layout>
    %3 = tile.launch @negf_12_f32_0 chunks 1 : i64 inplace [](%1) : (tensor<2x4xf32>) -> tensor<2x4xf32, #layout1>
    %4 = tile.assemble(%2, %3 : tensor<2x4xf32, #layout>, tensor<2x4xf32, #layout1>) offsets [0, 0, 0, 4] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<2x8xf32>
    %5 = tile.launch @move_16_f32_0 chunks 1 : i64 inplace [](%4) : (tensor<2x8xf32>) -> tensor<8x2xf32>
    pg.return [#pg.bytes<"y">], %5 : tensor<8x2xf32>
  }
}
