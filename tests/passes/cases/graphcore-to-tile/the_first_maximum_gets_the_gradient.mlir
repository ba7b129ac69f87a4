// One reduction finds where each window's maximum stands, never in the padding; a scatter adds there.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<1x2x5xf32>, %dy: tensor<1x2x3xf32>):
    %dx = graphcore.max_pool_grad %x, %dy {kernel = [3], strides = [2], dilations = [1], pads = [1, 1], sizes = [3]} : (tensor<1x2x5xf32>, tensor<1x2x3xf32>) -> tensor<1x2x5xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x2x5xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<1x2x5xf32>, %dy: tensor<1x2x3xf32>):
    %0 = tile.assemble(%x : tensor<1x2x5xf32>) offsets [0, 0, 1] steps [1, 1, 1] fill 0xff800000 : f32 -> tensor<1x2x7xf32>
    %1 = tile.reduce ins(%0 : tensor<1x2x7xf32>) domain [1, 2, 3, 3] parallel 3 : i64 maps [affine_map<(d0, d1, d2, d3) -> (d0, d1, ((d2 * 2) + d3))>] extra_maps [] initial [0xff800000 : f32, -1 : i64] {
    ^bb0(%2: f32, %3: f32, %4: i64):
      %5 = arith.constant 0 : i64
      %6 = tile.index 2 : i64
      %7 = arith.index_cast %6 : index to i64
      %8 = tile.index 3 : i64
      %9 = arith.index_cast %8 : index to i64
      %10 = arith.constant 2 : i64
      %11 = arith.muli %7, %10 : i64
      %12 = arith.constant 1 : i64
      %13 = arith.muli %9, %12 : i64
      %14 = arith.addi %11, %13 : i64
      %15 = arith.constant 1 : i64
      %16 = arith.subi %14, %15 : i64
      %17 = arith.constant 5 : i64
      %18 = arith.cmpi ult, %16, %17 : i64
      %19 = arith.constant 5 : i64
      %20 = arith.muli %5, %19 : i64
      %21 = arith.addi %20, %16 : i64
      %22 = arith.constant -1 : i64
      %23 = arith.cmpi eq, %4, %22 : i64
      %24 = arith.cmpf ugt, %2, %3 : f32
      %25 = arith.cmpf ord, %3, %3 : f32
      %26 = arith.andi %24, %25 : i1
      %27 = arith.ori %23, %26 : i1
      %28 = arith.andi %18, %27 : i1
      %29 = arith.select %28, %2, %3 : f32
      %30 = arith.select %28, %21, %4 : i64
      tile.yield %29, %30 : f32, i64
    } finish {
    ^bb0(%31: f32, %32: i64):
      tile.yield %32 : i64
    } -> tensor<1x2x3xi64>
    %dx = tile.scatter ins(%1, %dy : tensor<1x2x3xi64>, tensor<1x2x3xf32>) domain [1, 2, 3] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
    ^bb0(%33: i64, %34: f32):
      %35 = arith.index_cast %33 : i64 to index
      %36 = tile.index 0 : i64
      %37 = tile.index 1 : i64
      tile.yield %36, %37, %35, %34 : index, index, index, f32
    } -> tensor<1x2x5xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x2x5xf32>
  }
}
