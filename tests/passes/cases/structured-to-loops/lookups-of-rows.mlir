// If only the last index of a lookup depends on the lane, and by one per lane, the lookup is a vector load.
#map = affine_map<(d0, d1) -> (d0)>
#map1 = affine_map<(d0, d1) -> (d0, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"t">, #pg.bytes<"x">] {
  ^bb0(%t: tensor<5x16xf32>, %x: tensor<3x16xf32>):
    %p = pg.constant #pg.data<"000000000000000004000000000000000100000000000000" : tensor<3xi64>>
    %y = tile.map ins(%p, %x : tensor<3xi64>, tensor<3x16xf32>) tables(%t : tensor<5x16xf32>) domain [3, 16] maps [#map, #map1] {
    ^bb0(%i: i64, %s: f32, %a: tensor<5x16xf32>):
      %place = arith.index_cast %i : i64 to index
      %d1 = tile.index 1 : i64
      %e = tile.element %a[%place, %d1] : tensor<5x16xf32> -> f32
      %f = arith.addf %e, %s : f32
      tile.yield %f : f32
    } -> tensor<3x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x16xf32>
  }
}
// -----
builtin.module {
  func.func private @addf_48_f32_0(%0: index, %1: memref<3xi64>, %2: memref<48xf32>, %3: memref<80xf32>, %4: memref<48xf32>) {
    %5 = arith.constant 0 : index
    %6 = arith.constant 3 : index
    %7 = arith.constant 1 : index
    %8 = arith.constant 16 : index
    scf.for %9 = %5 to %6 step %7 {
      %10 = memref.load %1[%9] : memref<3xi64>
      %11 = arith.muli %9, %8 : index
      %12 = vector.load %2[%11] : memref<48xf32>, vector<16xf32>
      %13 = arith.index_cast %10 : i64 to index
      %14 = arith.muli %13, %8 : index
      %15 = arith.addi %5, %14 : index
      %16 = vector.load %3[%15] : memref<80xf32>, vector<16xf32>
      %17 = arith.addf %16, %12 : vector<16xf32>
      vector.store %17, %4[%11] : memref<48xf32>, vector<16xf32>
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"t">, #pg.bytes<"x">] {
  ^bb0(%t: tensor<5x16xf32>, %x: tensor<3x16xf32>):
    %p = pg.constant #pg.data<"000000000000000004000000000000000100000000000000" : tensor<3xi64>>
    %y = tile.launch @addf_48_f32_0 chunks 1 : i64 inplace [1, 0](%p, %x, %t) : (tensor<3xi64>, tensor<3x16xf32>, tensor<5x16xf32>) -> tensor<3x16xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x16xf32>
  }
}
