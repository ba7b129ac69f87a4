// Without vectors, sums of integers are blocked, too, by the registers for integers.
// -p schedule-contractions{vector-bytes=4 registers=32 integer-registers=8 least-products=64}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<16x24xi8>, %1: tensor<24x16xi8>):
    %2 = tile.reduce ins(%0, %1 : tensor<16x24xi8>, tensor<24x16xi8>) domain [16, 16, 24] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product [0 : i32] {
    ^bb0(%3: i8, %4: i8, %5: i32):
      %6 = arith.extsi %3 : i8 to i32
      %7 = arith.extsi %4 : i8 to i32
      %8 = arith.muli %6, %7 : i32
      %9 = arith.addi %5, %8 : i32
      tile.yield %9 : i32
    } epilogue {
    ^bb0(%10: i32):
      tile.yield %10 : i32
    } -> tensor<16x16xi32>
    pg.return [#pg.bytes<"y">], %2 : tensor<16x16xi32>
  }
}
// -----
#map = affine_map<(d0, d1) -> ((d1 floordiv 1), d0, (d1 mod 1))>
#map1 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d2, d1)>
#layout = #tile.layout<#map, #pg.ints[16, 24, 1]>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<16x24xi8>, %1: tensor<24x16xi8>):
    %2 = tile.pack %1 : tensor<24x16xi8> -> tensor<24x16xi8, #layout>
    %3 = tile.reduce ins(%0, %2 : tensor<16x24xi8>, tensor<24x16xi8, #layout>) domain [16, 16, 24] parallel 2 : i64 maps [#map1, #map2] epilogue_maps [] product [0 : i32] {
    ^bb0(%4: i8, %5: i8, %6: i32):
      %7 = arith.extsi %4 : i8 to i32
      %8 = arith.extsi %5 : i8 to i32
      %9 = arith.muli %7, %8 : i32
      %10 = arith.addi %6, %9 : i32
      tile.yield %10 : i32
    } schedule <n_dim 1, n_vectors 1, m_dim 0, mr 5, kc 256, lanes 1> epilogue {
    ^bb0(%11: i32):
      tile.yield %11 : i32
    } -> tensor<16x16xi32>
    pg.return [#pg.bytes<"y">], %3 : tensor<16x16xi32>
  }
}
