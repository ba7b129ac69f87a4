// Without vectors, a contraction extends integers as it reads them, with or without their sign.
// -p fuse-elementwise{is-scalar=true}
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x3xui8>, %1: tensor<3x4xi8>):
    %2 = tile.map ins(%0 : tensor<2x3xui8>) domain [2, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%3: ui8):
      %4 = arith.bitcast %3 : ui8 to i8
      %5 = arith.extui %4 : i8 to i32
      tile.yield %5 : i32
    } -> tensor<2x3xi32>
    %6 = tile.map ins(%1 : tensor<3x4xi8>) domain [3, 4] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%7: i8):
      %8 = arith.extsi %7 : i8 to i32
      tile.yield %8 : i32
    } -> tensor<3x4xi32>
    %9 = tile.reduce ins(%2, %6 : tensor<2x3xi32>, tensor<3x4xi32>) domain [2, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product i32 epilogue {
    ^bb0(%10: i32):
      tile.yield %10 : i32
    } -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %9 : tensor<2x4xi32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%0: tensor<2x3xui8>, %1: tensor<3x4xi8>):
    %2 = tile.reduce ins(%0, %1 : tensor<2x3xui8>, tensor<3x4xi8>) domain [2, 4, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product [0 : i32] {
    ^bb0(%3: ui8, %4: i8, %5: i32):
      %6 = arith.extsi %4 : i8 to i32
      %7 = arith.bitcast %3 : ui8 to i8
      %8 = arith.extui %7 : i8 to i32
      %9 = arith.muli %8, %6 : i32
      %10 = arith.addi %5, %9 : i32
      tile.yield %10 : i32
    } epilogue {
    ^bb0(%11: i32):
      tile.yield %11 : i32
    } -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %2 : tensor<2x4xi32>
  }
}
