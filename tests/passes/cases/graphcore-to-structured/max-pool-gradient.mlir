// One reduction stores the first maximum of each window as a byte, never one in the padding; in a second
// one, every element reads the windows that cover it.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<1x2x5xf32>, %dy: tensor<1x2x3xf32>):
    %dx = graphcore.max_pool_grad %x, %dy {kernel = [3], strides = [2], dilations = [1], pads = [1, 1], sizes = [3]} : (tensor<1x2x5xf32>, tensor<1x2x3xf32>) -> tensor<1x2x5xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x2x5xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, ((d2 * 2) + d3))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, ((((d2 + 1) floordiv 2) + (d3 * -1)) + 1))>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"dy">] {
  ^bb0(%x: tensor<1x2x5xf32>, %dy: tensor<1x2x3xf32>):
    %0 = tile.assemble(%x : tensor<1x2x5xf32>) offsets [0, 0, 1] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x2x7xf32>
    %1 = tile.reduce ins(%0 : tensor<1x2x7xf32>) domain [1, 2, 3, 3] parallel 3 : i64 maps [#map] epilogue_maps [] initial [0xff800000 : f32, -1 : i32] {
    ^bb0(%2: f32, %3: f32, %4: i32):
      %5 = tile.index 3 : i64
      %6 = arith.index_cast %5 : index to i32
      %7 = arith.constant 1 : i32
      %8 = arith.muli %6, %7 : i32
      %9 = arith.constant -1 : i32
      %10 = arith.cmpi eq, %4, %9 : i32
      %11 = arith.cmpf ugt, %2, %3 : f32
      %12 = arith.cmpf ord, %3, %3 : f32
      %13 = arith.andi %11, %12 : i1
      %14 = arith.ori %10, %13 : i1
      %15 = tile.index 2 : i64
      %16 = arith.index_cast %15 : index to i32
      %17 = arith.constant 2 : i32
      %18 = arith.muli %16, %17 : i32
      %19 = tile.index 3 : i64
      %20 = arith.index_cast %19 : index to i32
      %21 = arith.constant 1 : i32
      %22 = arith.muli %20, %21 : i32
      %23 = arith.addi %18, %22 : i32
      %24 = arith.constant 1 : i32
      %25 = arith.subi %23, %24 : i32
      %26 = arith.constant 5 : i32
      %27 = arith.cmpi ult, %25, %26 : i32
      %28 = arith.andi %27, %14 : i1
      %29 = arith.select %28, %2, %3 : f32
      %30 = arith.select %28, %8, %4 : i32
      tile.yield %29, %30 : f32, i32
    } epilogue {
    ^bb0(%31: f32, %32: i32):
      %33 = arith.trunci %32 : i32 to i8
      tile.yield %33 : i8
    } -> tensor<1x2x3xi8>
    %34 = tile.assemble(%1 : tensor<1x2x3xi8>) offsets [0, 0, 1] steps [1, 1, 1] fill 0 : i8 -> tensor<1x2x4xi8>
    %35 = tile.assemble(%dy : tensor<1x2x3xf32>) offsets [0, 0, 1] steps [1, 1, 1] fill 0.000000e+00 : f32 -> tensor<1x2x4xf32>
    %dx = tile.reduce ins(%34, %35 : tensor<1x2x4xi8>, tensor<1x2x4xf32>) domain [1, 2, 5, 2] parallel 3 : i64 maps [#map1, #map1] epilogue_maps [] initial [0.000000e+00 : f32] {
    ^bb0(%36: i8, %37: f32, %38: f32):
      %39 = tile.index 3 : i64
      %40 = arith.index_cast %39 : index to i32
      %41 = arith.constant 2 : i32
      %42 = arith.muli %40, %41 : i32
      %43 = tile.index 2 : i64
      %44 = arith.index_cast %43 : index to i32
      %45 = arith.constant 1 : i32
      %46 = arith.addi %44, %45 : i32
      %47 = arith.constant 2 : i32
      %48 = arith.remui %46, %47 : i32
      %49 = arith.addi %42, %48 : i32
      %50 = arith.extsi %36 : i8 to i32
      %51 = arith.cmpi eq, %50, %49 : i32
      %52 = arith.constant 0.000000e+00 : f32
      %53 = arith.select %51, %37, %52 : f32
      %54 = arith.addf %38, %53 : f32
      tile.yield %54 : f32
    } epilogue {
    ^bb0(%55: f32):
      tile.yield %55 : f32
    } -> tensor<1x2x5xf32>
    pg.return [#pg.bytes<"dx">], %dx : tensor<1x2x5xf32>
  }
}
