// With excluded padding, each window multiplies by one over its number of elements: a vector per axis.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x4x4xf32>):
    %y = graphcore.average_pool %x {include_pad = false, kernel = [3, 1], strides = [1, 1], dilations = [1, 1], pads = [1, 0, 1, 0], sizes = [4, 4]} : (tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x1x4x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, (d2 + d4), (d3 + d5))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d2)>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<1x1x4x4xf32>):
    %0 = pg.constant #pg.data<"0000003fabaaaa3eabaaaa3e0000003f" : tensor<4xf32>>
    %1 = tile.assemble(%x : tensor<1x1x4x4xf32>) offsets [0, 0, 1, 0] steps [1, 1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x1x6x4xf32>
    %y = tile.reduce ins(%1 : tensor<1x1x6x4xf32>) epilogue_inputs(%0 : tensor<4xf32>) domain [1, 1, 4, 4, 3, 1] parallel 4 : i64 maps [#map] epilogue_maps [#map1] initial [0.000000e+00 : f32] {
    ^bb0(%2: f32, %3: f32):
      %4 = arith.addf %3, %2 : f32
      tile.yield %4 : f32
    } epilogue {
    ^bb0(%5: f32, %6: f32):
      %7 = arith.mulf %5, %6 : f32
      tile.yield %7 : f32
    } -> tensor<1x1x4x4xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x1x4x4xf32>
  }
}
