// Mixed tokens come last between blocks, but channels in the hidden layer between two matmuls.
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1, d2) -> (d2, d0)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<16x24xf32>):
    %t = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %a = pg.constant #pg.data<seed 2 : tensor<24x48xf32>>
    %b = pg.constant #pg.data<seed 3 : tensor<48x24xf32>>
    %e = tile.map ins(%x : tensor<16x24xf32>) domain [16, 24] maps [#map] {
    ^bb0(%0: f32):
      %1 = arith.constant 0.000000e+00 : f32
      %2 = arith.maximumf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<16x24xf32>
    %m = tile.reduce ins(%e, %t : tensor<16x24xf32>, tensor<16x16xf32>) epilogue_inputs(%e : tensor<16x24xf32>)
        domain [16, 24, 16] parallel 2 : i64 maps [#map1, #map2] epilogue_maps [#map] product f32 epilogue {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.addf %4, %3 : f32
      tile.yield %5 : f32
    } -> tensor<16x24xf32>
    %h = tile.reduce ins(%m, %a : tensor<16x24xf32>, tensor<24x48xf32>) domain [16, 48, 24] parallel 2 : i64 maps [#map3, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      %7 = arith.constant 0.000000e+00 : f32
      %8 = arith.maximumf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<16x48xf32>
    %y = tile.reduce ins(%h, %b : tensor<16x48xf32>, tensor<48x24xf32>) epilogue_inputs(%m : tensor<16x24xf32>)
        domain [16, 24, 48] parallel 2 : i64 maps [#map3, #map1] epilogue_maps [#map] product f32 epilogue {
    ^bb0(%9: f32, %10: f32):
      %11 = arith.addf %10, %9 : f32
      tile.yield %11 : f32
    } -> tensor<16x24xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<16x24xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
#map3 = affine_map<(d0, d1, d2) -> (d2, d0)>
#map4 = affine_map<(d0, d1, d2) -> (d1, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<16x24xf32>):
    %t = pg.constant #pg.data<seed 1 : tensor<16x16xf32>>
    %a = pg.constant #pg.data<seed 2 : tensor<24x48xf32>>
    %b = pg.constant #pg.data<seed 3 : tensor<48x24xf32>>
    %e = tile.map ins(%x : tensor<16x24xf32>) domain [24, 16] maps [affine_map<(d0, d1) -> (d1, d0)>] {
    ^bb0(%0: f32):
      %1 = arith.constant 0.000000e+00 : f32
      %2 = arith.maximumf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<24x16xf32>
    %m = tile.reduce ins(%e, %t : tensor<24x16xf32>, tensor<16x16xf32>) epilogue_inputs(%e : tensor<24x16xf32>)
        domain [24, 16, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.addf %4, %3 : f32
      tile.yield %5 : f32
    } -> tensor<24x16xf32>
    %h = tile.reduce ins(%m, %a : tensor<24x16xf32>, tensor<24x48xf32>) domain [16, 48, 24] parallel 2 : i64 maps [#map3, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%6: f32):
      %7 = arith.constant 0.000000e+00 : f32
      %8 = arith.maximumf %6, %7 : f32
      tile.yield %8 : f32
    } -> tensor<16x48xf32>
    %y = tile.reduce ins(%h, %b : tensor<16x48xf32>, tensor<48x24xf32>) epilogue_inputs(%m : tensor<24x16xf32>)
        domain [24, 16, 48] parallel 2 : i64 maps [#map4, #map3] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%9: f32, %10: f32):
      %11 = arith.addf %10, %9 : f32
      tile.yield %11 : f32
    } -> tensor<24x16xf32>
    %12 = tile.map ins(%y : tensor<24x16xf32>) domain [16, 24] maps [affine_map<(d0, d1) -> (d1, d0)>] {
    ^bb0(%13: f32):
      tile.yield %13 : f32
    } -> tensor<16x24xf32>
    pg.return [#pg.bytes<"y">], %12 : tensor<16x24xf32>
  }
}
