// All maps that only updates read keep the order of the variable, so that they work in its memory.
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d2 + d5), (d3 + d6))>
#map2 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1, d4, d5, d6)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d1, (d5 + d2), (d6 + d3))>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d0, d5, d6)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"image">, #pg.bytes<"dy">] {
  ^bb0(%image: tensor<1x9x6x6xf32>, %dy: tensor<1x8x4x4xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<8x9x3x3xf32>>
    %velocity = pg.variable #pg.bytes<"velocity"> = #pg.data<seed 2 : tensor<8x9x3x3xf32>>
    %x = tile.map ins(%image : tensor<1x9x6x6xf32>) domain [1, 9, 6, 6] maps [#map] {
    ^bb0(%a: f32):
      %b = math.absf %a : f32
      tile.yield %b : f32
    } -> tensor<1x9x6x6xf32>
    %y = tile.reduce ins(%x, %w : tensor<1x9x6x6xf32>, tensor<8x9x3x3xf32>) domain [1, 8, 4, 4, 9, 3, 3] parallel 4 : i64 maps [#map1, #map2] epilogue_maps [] product f32 epilogue {
    ^bb0(%c: f32):
      tile.yield %c : f32
    } -> tensor<1x8x4x4xf32>
    %new = tile.reduce ins(%x, %dy : tensor<1x9x6x6xf32>, tensor<1x8x4x4xf32>) epilogue_inputs(%velocity : tensor<8x9x3x3xf32>)
        domain [8, 9, 3, 3, 1, 4, 4] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [#map] product f32 epilogue {
    ^bb0(%d: f32, %e: f32):
      %f = arith.subf %e, %d : f32
      tile.yield %f : f32
    } -> tensor<8x9x3x3xf32>
    %state = tile.map ins(%new : tensor<8x9x3x3xf32>) domain [8, 9, 3, 3] maps [#map] {
    ^bb0(%g: f32):
      %h = arith.negf %g : f32
      tile.yield %h : f32
    } -> tensor<8x9x3x3xf32>
    %next = tile.map ins(%w, %new : tensor<8x9x3x3xf32>, tensor<8x9x3x3xf32>) domain [8, 9, 3, 3] maps [#map, #map] {
    ^bb0(%i: f32, %j: f32):
      %k = arith.addf %i, %j : f32
      tile.yield %k : f32
    } -> tensor<8x9x3x3xf32>
    pg.update <"w">, %next : tensor<8x9x3x3xf32>
    pg.update <"velocity">, %state : tensor<8x9x3x3xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x8x4x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, (d1 + d4), (d2 + d5), d6)>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d3, d6, d4, d5)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>
#map3 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, (d5 + d1), (d6 + d2), d3)>
#map4 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d0, d5, d6)>
#map5 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"image">, #pg.bytes<"dy">] {
  ^bb0(%image: tensor<1x9x6x6xf32>, %dy: tensor<1x8x4x4xf32>):
    %w = pg.variable #pg.bytes<"w"> = #pg.data<seed 1 : tensor<8x9x3x3xf32>>
    %velocity = pg.variable #pg.bytes<"velocity"> = #pg.data<seed 2 : tensor<8x9x3x3xf32>>
    %x = tile.map ins(%image : tensor<1x9x6x6xf32>) domain [1, 6, 6, 9] maps [affine_map<(d0, d1, d2, d3) -> (d0, d3, d1, d2)>] {
    ^bb0(%a: f32):
      %b = math.absf %a : f32
      tile.yield %b : f32
    } -> tensor<1x6x6x9xf32>
    %y = tile.reduce ins(%x, %w : tensor<1x6x6x9xf32>, tensor<8x9x3x3xf32>) domain [1, 4, 4, 8, 3, 3, 9] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%c: f32):
      tile.yield %c : f32
    } -> tensor<1x4x4x8xf32>
    %0 = tile.map ins(%y : tensor<1x4x4x8xf32>) domain [1, 8, 4, 4] maps [#map2] {
    ^bb0(%1: f32):
      tile.yield %1 : f32
    } -> tensor<1x8x4x4xf32>
    %2 = tile.reduce ins(%x, %dy : tensor<1x6x6x9xf32>, tensor<1x8x4x4xf32>) domain [8, 3, 3, 9, 1, 4, 4] parallel 4 : i64 maps [#map3, #map4] epilogue_maps [] product f32 epilogue {
    ^bb0(%3: f32):
      tile.yield %3 : f32
    } -> tensor<8x3x3x9xf32>
    %new = tile.map ins(%2, %velocity : tensor<8x3x3x9xf32>, tensor<8x9x3x3xf32>) domain [8, 9, 3, 3] maps [#map2, #map5] {
    ^bb0(%d: f32, %e: f32):
      %f = arith.subf %e, %d : f32
      tile.yield %f : f32
    } -> tensor<8x9x3x3xf32>
    %state = tile.map ins(%new : tensor<8x9x3x3xf32>) domain [8, 9, 3, 3] maps [#map5] {
    ^bb0(%g: f32):
      %h = arith.negf %g : f32
      tile.yield %h : f32
    } -> tensor<8x9x3x3xf32>
    %next = tile.map ins(%w, %new : tensor<8x9x3x3xf32>, tensor<8x9x3x3xf32>) domain [8, 9, 3, 3] maps [#map5, #map5] {
    ^bb0(%i: f32, %j: f32):
      %k = arith.addf %i, %j : f32
      tile.yield %k : f32
    } -> tensor<8x9x3x3xf32>
    pg.update <"w">, %next : tensor<8x9x3x3xf32>
    pg.update <"velocity">, %state : tensor<8x9x3x3xf32>
    pg.return [#pg.bytes<"y">], %0 : tensor<1x8x4x4xf32>
  }
}
