// A product is added without rounding it first; sums of integers are exact already.
// -p fuse-products
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%x: tensor<5x7xf32>, %w: tensor<7x3xf32>, %a: tensor<5x7xi32>, %b: tensor<7x3xi32>):
    %y = tile.reduce ins(%x, %w : tensor<5x7xf32>, tensor<7x3xf32>) domain [5, 3, 7] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<5x3xf32>
    %z = tile.reduce ins(%a, %b : tensor<5x7xi32>, tensor<7x3xi32>) domain [5, 3, 7] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product i32 epilogue {
    ^bb0(%1: i32):
      tile.yield %1 : i32
    } -> tensor<5x3xi32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %y, %z : tensor<5x3xf32>, tensor<5x3xi32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%x: tensor<5x7xf32>, %w: tensor<7x3xf32>, %a: tensor<5x7xi32>, %b: tensor<7x3xi32>):
    %y = tile.reduce ins(%x, %w : tensor<5x7xf32>, tensor<7x3xf32>) domain [5, 3, 7] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] fused f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<5x3xf32>
    %z = tile.reduce ins(%a, %b : tensor<5x7xi32>, tensor<7x3xi32>) domain [5, 3, 7] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product i32 epilogue {
    ^bb0(%1: i32):
      tile.yield %1 : i32
    } -> tensor<5x3xi32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">], %y, %z : tensor<5x3xf32>, tensor<5x3xi32>
  }
}
