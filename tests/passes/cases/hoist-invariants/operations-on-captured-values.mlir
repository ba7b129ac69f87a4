// Operations on captured values only are computed once, before the loop.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"w">] {
  ^bb0(%h: tensor<2x3xf32>, %w: tensor<3x3xf32>):
    %y, %all = pg.call_loop @loop_0 trips 4 carried (%h) captured (%w) : (tensor<2x3xf32>, tensor<3x3xf32>) -> (tensor<2x3xf32>, tensor<4x2x3xf32>)
    pg.return [#pg.bytes<"y">, #pg.bytes<"all">], %y, %all : tensor<2x3xf32>, tensor<4x2x3xf32>
  }
  pg.graph @loop_0 inputs [#pg.bytes<"turn">, #pg.bytes<"carried0">, #pg.bytes<"captured0">] {
  ^bb0(%i: tensor<i64>, %c: tensor<2x3xf32>, %v: tensor<3x3xf32>):
    %e = tile.map ins(%v : tensor<3x3xf32>) domain [3, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%0: f32):
      %1 = math.exp %0 : f32
      tile.yield %1 : f32
    } -> tensor<3x3xf32>
    %n = tile.map ins(%e : tensor<3x3xf32>) domain [3, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%2: f32):
      %3 = arith.negf %2 : f32
      tile.yield %3 : f32
    } -> tensor<3x3xf32>
    %p = tile.reduce ins(%c, %n : tensor<2x3xf32>, tensor<3x3xf32>) domain [2, 3, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<2x3xf32>
    pg.return [#pg.bytes<"carried0">, #pg.bytes<"row0">], %p, %p : tensor<2x3xf32>, tensor<2x3xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"w">] {
  ^bb0(%h: tensor<2x3xf32>, %w: tensor<3x3xf32>):
    %e = tile.map ins(%w : tensor<3x3xf32>) domain [3, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%0: f32):
      %1 = math.exp %0 : f32
      tile.yield %1 : f32
    } -> tensor<3x3xf32>
    %n = tile.map ins(%e : tensor<3x3xf32>) domain [3, 3] maps [affine_map<(d0, d1) -> (d0, d1)>] {
    ^bb0(%2: f32):
      %3 = arith.negf %2 : f32
      tile.yield %3 : f32
    } -> tensor<3x3xf32>
    %y, %all = pg.call_loop @loop_0 trips 4 carried (%h) captured (%w, %n) : (tensor<2x3xf32>, tensor<3x3xf32>, tensor<3x3xf32>) -> (tensor<2x3xf32>, tensor<4x2x3xf32>)
    pg.return [#pg.bytes<"y">, #pg.bytes<"all">], %y, %all : tensor<2x3xf32>, tensor<4x2x3xf32>
  }
  pg.graph @loop_0 inputs [#pg.bytes<"turn">, #pg.bytes<"carried0">, #pg.bytes<"captured0">, #pg.bytes<"captured1">] {
  ^bb0(%i: tensor<i64>, %c: tensor<2x3xf32>, %v: tensor<3x3xf32>, %n_1: tensor<3x3xf32>):
    %p = tile.reduce ins(%c, %n_1 : tensor<2x3xf32>, tensor<3x3xf32>) domain [2, 3, 3] parallel 2 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<2x3xf32>
    pg.return [#pg.bytes<"carried0">, #pg.bytes<"row0">], %p, %p : tensor<2x3xf32>, tensor<2x3xf32>
  }
}
