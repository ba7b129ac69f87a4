// A view that is concatenated lays out its source as a slice of the whole.
#map = affine_map<(d0, d1, d2, d3) -> (0, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"z">] {
  ^bb0(%x: tensor<1x16x24xf32>, %z: tensor<1x4x4x8xf32>):
    %a = pg.constant #pg.data<seed 1 : tensor<24x8xf32>>
    %b = pg.constant #pg.data<seed 2 : tensor<16x8xf32>>
    %one = tile.reduce ins(%x, %a : tensor<1x16x24xf32>, tensor<24x8xf32>) domain [1, 16, 8, 24] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<1x16x8xf32>
    %one_1 = tile.view %one : tensor<1x16x8xf32> -> tensor<1x4x4x8xf32>
    %two = tile.map ins(%z : tensor<1x4x4x8xf32>) domain [1, 4, 4, 8] maps [affine_map<(d0, d1, d2, d3) -> (0, d1, d2, d3)>] {
    ^bb0(%1: f32):
      %2 = arith.constant 0.000000e+00 : f32
      %3 = arith.maximumf %1, %2 : f32
      tile.yield %3 : f32
    } -> tensor<1x4x4x8xf32>
    %both = tile.assemble(%one_1, %two : tensor<1x4x4x8xf32>, tensor<1x4x4x8xf32>) offsets [0, 0, 0, 0, 0, 0, 0, 8] steps [1, 1, 1, 1, 1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x4x4x16xf32>
    %y = tile.view %both : tensor<1x4x4x16xf32> -> tensor<1x16x16xf32>
    %y_1 = tile.reduce ins(%y, %b : tensor<1x16x16xf32>, tensor<16x8xf32>) domain [1, 16, 8, 16] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x16x8xf32>
    pg.return [#pg.bytes<"y">], %y_1 : tensor<1x16x8xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (0, d1, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, (d3 + 8))>
#layout = #tile.layout<#map3, #pg.ints[1, 4, 4, 16], part 3>
#layout1 = #tile.layout<#map4, #pg.ints[1, 4, 4, 16], part 3>
!tensor = tensor<1x4x4x8xf32, #layout>
!tensor1 = tensor<1x4x4x8xf32, #layout1>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"z">] {
  ^bb0(%x: tensor<1x16x24xf32>, %z: tensor<1x4x4x8xf32>):
    %a = pg.constant #pg.data<seed 1 : tensor<24x8xf32>>
    %b = pg.constant #pg.data<seed 2 : tensor<16x8xf32>>
    %one = tile.reduce ins(%x, %a : tensor<1x16x24xf32>, tensor<24x8xf32>) domain [1, 16, 8, 24] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%0: f32):
      tile.yield %0 : f32
    } -> tensor<1x16x8xf32, #tile.layout<#map2, #pg.ints[1, 16, 16], part 2>>
    %one_1 = tile.view %one : tensor<1x16x8xf32, #tile.layout<#map2, #pg.ints[1, 16, 16], part 2>> -> !tensor
    %two = tile.map ins(%z : tensor<1x4x4x8xf32>) domain [1, 4, 4, 8] maps [affine_map<(d0, d1, d2, d3) -> (0, d1, d2, d3)>] {
    ^bb0(%1: f32):
      %2 = arith.constant 0.000000e+00 : f32
      %3 = arith.maximumf %1, %2 : f32
      tile.yield %3 : f32
    } -> !tensor1
    %both = tile.assemble(%one_1, %two : !tensor, !tensor1) offsets [0, 0, 0, 0, 0, 0, 0, 8] steps [1, 1, 1, 1, 1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x4x4x16xf32>
    %y = tile.view %both : tensor<1x4x4x16xf32> -> tensor<1x16x16xf32>
    %y_1 = tile.reduce ins(%y, %b : tensor<1x16x16xf32>, tensor<16x8xf32>) domain [1, 16, 8, 16] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<1x16x8xf32>
    pg.return [#pg.bytes<"y">], %y_1 : tensor<1x16x8xf32>
  }
}
