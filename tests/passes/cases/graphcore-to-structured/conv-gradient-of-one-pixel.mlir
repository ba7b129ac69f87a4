// One window that covers x: a matmul, whose result is viewed as images.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%dy: tensor<2x3x1x1xf32>, %w: tensor<3x32x2x4xf32>):
    %dx = graphcore.conv_input_grad %dy,
        %w {shape = [2, 32, 2, 4], strides = [1, 5], dilations = [1, 1], pads = [0, 0, 0, 0], groups = 1} : (tensor<2x3x1x1xf32>, tensor<3x32x2x4xf32>) -> tensor<2x32x2x4xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<2x32x2x4xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d4, (d2 + d5), (d3 + d6))>
#map1 = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d1, (d5 * -1), (d6 * -1))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"dy">, #pg.bytes<"w">] {
  ^bb0(%dy: tensor<2x3x1x1xf32>, %w: tensor<3x32x2x4xf32>):
    %0 = tile.view %w : tensor<3x32x2x4xf32> -> tensor<3x32x1x2x1x4xf32>
    %1 = tile.view %0 : tensor<3x32x1x2x1x4xf32> -> tensor<3x32x2x4x1x1xf32>
    %2 = tile.view %1 : tensor<3x32x2x4x1x1xf32> -> tensor<3x256x1x1xf32>
    %3 = tile.reduce ins(%dy, %2 : tensor<2x3x1x1xf32>, tensor<3x256x1x1xf32>) domain [2, 256, 1, 1, 3, 1, 1] parallel 4 : i64 maps [#map, #map1] epilogue_maps [] product f32 epilogue {
    ^bb0(%4: f32):
      tile.yield %4 : f32
    } -> tensor<2x256x1x1xf32>
    %5 = tile.view %3 : tensor<2x256x1x1xf32> -> tensor<2x32x2x4x1x1xf32>
    %6 = tile.view %5 : tensor<2x32x2x4x1x1xf32> -> tensor<2x32x1x2x1x4xf32>
    %dx = tile.view %6 : tensor<2x32x1x2x1x4xf32> -> tensor<2x32x2x4xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<2x32x2x4xf32>
  }
}
