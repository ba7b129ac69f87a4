// Adjacent loops with one joint stride in all operands and results are joined: a 1x1 convolution is a matmul over all
// pixels. The added operand has these loops, the weight has none of them; operands and results become views.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"z">] {
  ^bb0(%x: tensor<5x7x16xf32>, %w: tensor<16x24xf32>, %z: tensor<5x7x24xf32>):
    %y = tile.reduce ins(%x, %w : tensor<5x7x16xf32>, tensor<16x24xf32>) epilogue_inputs(%z : tensor<5x7x24xf32>)
        domain [5, 7, 24, 16] parallel 3 : i64
        maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d2)>]
        epilogue_maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] product f32 epilogue {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %0, %1 : f32
      tile.yield %2 : f32
    } -> tensor<5x7x24xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<5x7x24xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1) -> (d0, d1)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"w">, #pg.bytes<"z">] {
  ^bb0(%x: tensor<5x7x16xf32>, %w: tensor<16x24xf32>, %z: tensor<5x7x24xf32>):
    %0 = tile.view %x : tensor<5x7x16xf32> -> tensor<35x16xf32>
    %1 = tile.view %z : tensor<5x7x24xf32> -> tensor<35x24xf32>
    %2 = tile.reduce ins(%0, %w : tensor<35x16xf32>, tensor<16x24xf32>) epilogue_inputs(%1 : tensor<35x24xf32>)
        domain [35, 24, 16] parallel 2 : i64 maps [#map, #map1] epilogue_maps [#map2] product f32 epilogue {
    ^bb0(%3: f32, %4: f32):
      %5 = arith.addf %3, %4 : f32
      tile.yield %5 : f32
    } -> tensor<35x24xf32>
    %y = tile.view %2 : tensor<35x24xf32> -> tensor<5x7x24xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<5x7x24xf32>
  }
}
