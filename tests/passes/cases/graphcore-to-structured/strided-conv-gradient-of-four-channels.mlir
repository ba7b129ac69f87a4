// The phases of four channels are eight channels of one convolution, whose elements are interleaved.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%dy: tensor<1x2x3xf32>, %w: tensor<2x4x3xf32>):
    %dx = graphcore.conv_input_grad %dy, %w {shape = [1, 4, 7], strides = [2], dilations = [1], pads = [0, 0], groups = 1} : (tensor<1x2x3xf32>, tensor<2x4x3xf32>) -> tensor<1x4x7xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x4x7xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, (d2 + d4))>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d3, d1, ((d4 * -1) + 1))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%dy: tensor<1x2x3xf32>, %w: tensor<2x4x3xf32>):
    %0 = tile.assemble(%dy : tensor<1x2x3xf32>) offsets [0, 0, 1] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x2x5xf32>
    %1 = tile.assemble(%w : tensor<2x4x3xf32>) offsets [0, 0, 0] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<2x4x4xf32>
    %2 = tile.view %1 : tensor<2x4x4xf32> -> tensor<2x4x2x2xf32>
    %3 = tile.map ins(%2 : tensor<2x4x2x2xf32>) domain [2, 4, 2, 2] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>] {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<2x4x2x2xf32>
    %5 = tile.view %3 : tensor<2x4x2x2xf32> -> tensor<2x8x2xf32>
    %6 = tile.reduce ins(%0, %5 : tensor<1x2x5xf32>, tensor<2x8x2xf32>) domain [1, 8, 4, 2, 2] parallel 3 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%7: f32):
      tile.yield %7 : f32
    } -> tensor<1x8x4xf32>
    %8 = tile.view %6 : tensor<1x8x4xf32> -> tensor<1x4x2x4xf32>
    %9 = tile.map ins(%8 : tensor<1x4x2x4xf32>) domain [1, 4, 4, 2] maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3, d2)>] {
    ^bb0(%10: f32):
      tile.yield %10 : f32
    } -> tensor<1x4x4x2xf32>
    %11 = tile.view %9 : tensor<1x4x4x2xf32> -> tensor<1x4x8xf32>
    %dx = tile.map ins(%11 : tensor<1x4x8xf32>) domain [1, 4, 7] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
    ^bb0(%12: f32):
      tile.yield %12 : f32
    } -> tensor<1x4x7xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x4x7xf32>
  }
}
