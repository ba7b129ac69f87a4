// Words of bytes from four rows stay: these bytes are not adjacent.
// -p view-words
#map = affine_map<(d0, d1) -> ((d0 * 4), d1)>
#map1 = affine_map<(d0, d1) -> (((d0 * 4) + 1), d1)>
#map2 = affine_map<(d0, d1) -> (((d0 * 4) + 2), d1)>
#map3 = affine_map<(d0, d1) -> (((d0 * 4) + 3), d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%a: tensor<12x2xi8>):
    %x = tile.map ins(%a : tensor<12x2xi8>) domain [12, 2] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%20: i8):
      %21 = arith.muli %20, %20 : i8
      tile.yield %21 : i8
    } -> tensor<12x2xi8>
    %y = tile.map ins(%x, %x, %x, %x : tensor<12x2xi8>, tensor<12x2xi8>, tensor<12x2xi8>, tensor<12x2xi8>) domain [3, 2] maps [#map, #map1, #map2, #map3] {
    ^bb0(%0: i8, %1: i8, %2: i8, %3: i8):
      %4 = arith.extui %0 : i8 to i32
      %5 = arith.extui %1 : i8 to i32
      %6 = arith.constant 8 : i32
      %7 = arith.shli %5, %6 : i32
      %8 = arith.ori %4, %7 : i32
      %9 = arith.extui %2 : i8 to i32
      %10 = arith.constant 16 : i32
      %11 = arith.shli %9, %10 : i32
      %12 = arith.ori %8, %11 : i32
      %13 = arith.extsi %3 : i8 to i32
      %14 = arith.constant 24 : i32
      %15 = arith.shli %13, %14 : i32
      %16 = arith.ori %12, %15 : i32
      tile.yield %16 : i32
    } -> tensor<3x2xi32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x2xi32>
  }
}
// -----
#map = affine_map<(d0, d1) -> ((d0 * 4), d1)>
#map1 = affine_map<(d0, d1) -> (((d0 * 4) + 1), d1)>
#map2 = affine_map<(d0, d1) -> (((d0 * 4) + 2), d1)>
#map3 = affine_map<(d0, d1) -> (((d0 * 4) + 3), d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%a: tensor<12x2xi8>):
    %x = tile.map ins(%a : tensor<12x2xi8>) domain [12, 2] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%0: i8):
      %1 = arith.muli %0, %0 : i8
      tile.yield %1 : i8
    } -> tensor<12x2xi8>
    %y = tile.map ins(%x, %x, %x, %x : tensor<12x2xi8>, tensor<12x2xi8>, tensor<12x2xi8>, tensor<12x2xi8>) domain [3, 2] maps [#map, #map1, #map2, #map3] {
    ^bb0(%2: i8, %3: i8, %4: i8, %5: i8):
      %6 = arith.extui %2 : i8 to i32
      %7 = arith.extui %3 : i8 to i32
      %8 = arith.constant 8 : i32
      %9 = arith.shli %7, %8 : i32
      %10 = arith.ori %6, %9 : i32
      %11 = arith.extui %4 : i8 to i32
      %12 = arith.constant 16 : i32
      %13 = arith.shli %11, %12 : i32
      %14 = arith.ori %10, %13 : i32
      %15 = arith.extsi %5 : i8 to i32
      %16 = arith.constant 24 : i32
      %17 = arith.shli %15, %16 : i32
      %18 = arith.ori %14, %17 : i32
      tile.yield %18 : i32
    } -> tensor<3x2xi32>
    pg.return [#pg.bytes<"y">], %y : tensor<3x2xi32>
  }
}
