// A result with a halo keeps its loops, also those of one step in no map; loops over terms are joined,
// through views of operands without a layout.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x1x4x6xf32>, %w: tensor<4x6x8xf32>):
    %y = tile.reduce ins(%x, %w : tensor<1x1x4x6xf32>, tensor<4x6x8xf32>) domain [1, 1, 8, 4, 6] parallel 3 : i64
        maps [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d3, d4, d2)>]
        epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<1x1x8xf32, #tile.layout<affine_map<(d0, d1, d2) -> (d0 + 1, d1 + 1, d2)>, #pg.ints[3, 3, 8]>>
    %s = tile.map ins(%y : tensor<1x1x8xf32, #tile.layout<affine_map<(d0, d1, d2) -> (d0 + 1, d1 + 1, d2)>, #pg.ints[3, 3, 8]>>)
        domain [1, 1, 8] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
    ^bb0(%1: f32):
      %2 = arith.negf %1 : f32
      tile.yield %2 : f32
    } -> tensor<1x1x8xf32>
    pg.return [#pg.bytes<"s">], %s : tensor<1x1x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (0, 0, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">] {
  ^bb0(%x: tensor<1x1x4x6xf32>, %w: tensor<4x6x8xf32>):
    %0 = tile.view %x : tensor<1x1x4x6xf32> -> tensor<1x1x24xf32>
    %1 = tile.view %w : tensor<4x6x8xf32> -> tensor<24x8xf32>
    %y = tile.reduce ins(%0, %1 : tensor<1x1x24xf32>, tensor<24x8xf32>) domain [1, 1, 8, 24] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%2: f32):
      tile.yield %2 : f32
    } -> tensor<1x1x8xf32, #tile.layout<affine_map<(d0, d1, d2) -> ((d0 + 1), (d1 + 1), d2)>, #pg.ints[3, 3, 8]>>
    %s = tile.map ins(%y : tensor<1x1x8xf32, #tile.layout<affine_map<(d0, d1, d2) -> ((d0 + 1), (d1 + 1), d2)>, #pg.ints[3, 3, 8]>>) domain [1, 1, 8] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
    ^bb0(%3: f32):
      %4 = arith.negf %3 : f32
      tile.yield %4 : f32
    } -> tensor<1x1x8xf32>
    pg.return [#pg.bytes<"s">], %s : tensor<1x1x8xf32>
  }
}
