// popgraph opt --passes view-words
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x32xf32>):
    %Constant = pg.constant #pg.data<"0000fe42" : tensor<f32>>
    %Constant_1 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %Constant_2 = pg.constant #pg.data<"0000803f" : tensor<f32>>
    %Transpose = pg.constant #pg.data<"0600000008000000050000000f0000000c0000000e000000060000000d00000002000000050000000c00000000000000010000000d0000000600000004000000070000000c000000010000000200000006000000090000000800000001000000040000000e000000070000000600000002000000080000000c000000040000000f0000000a000000080000000a0000000f000000070000000b0000000f00000003000000020000000b000000080000000e0000000e00000003000000060000000f00000005000000030000000f000000070000000d000000030000000300000007000000080000000e0000000e000000020000000c0000000a0000000b000000020000000c00000000000000030000000a00000006000000010000000c0000000900000007000000020000000f000000060000000c0000000f0000000d0000000c00000002000000030000000f0000000a000000000000000f000000010000000d000000030000000d0000000e0000000a000000030000000a00000005000000090000000600000000000000070000000200000009000000080000000e000000030000000a000000050000000400000001000000050000000b0000000e0000000c0000000d0000000b000000010000000f0000000b0000000d00000003000000020000000a0000000f000000050000000400000008000000090000000b000000010000000e0000000100000002000000060000000b0000000d0000000a0000000f0000000b0000000f0000000c00000003000000040000000c00000003000000030000000c000000000000000e0000000d000000020000000d000000050000000e000000050000000c0000000e000000070000000e0000000f0000000e000000" : tensor<2x16x5xi32>>
    %0 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %1 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %2 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %3 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %4 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %5 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %6 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %7 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %8 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %9 = pg.constant #pg.data<"04000000" : tensor<i32>>
    %CastLike = pg.constant #pg.data<"00000041" : tensor<f32>>
    %Transpose_1 = pg.constant #pg.data<"8c7b6fbd027c6abc2e42ebbd853cea3c267b603daf791f3c4daedc3d08936d3d187af1bdefcff7bd" : tensor<2x1x5xf32>>
    %10 = pg.prepare {
      %11 = tile.map ins(%Transpose : tensor<2x16x5xi32>) domain [2, 16, 5] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] {
      ^bb0(%12: i32):
        %13 = arith.trunci %12 : i32 to i8
        %14 = arith.bitcast %13 : i8 to ui8
        tile.yield %14 : ui8
      } -> tensor<2x16x5xui8>
      %15 = tile.map ins(%11, %11, %11, %11, %11, %11, %11, %11 : tensor<2x16x5xui8>, tensor<2x16x5xui8>, tensor<2x16x5xui8>, tensor<2x16x5xui8>, tensor<2x16x5xui8>, tensor<2x16x5xui8>, tensor<2x16x5xui8>, tensor<2x16x5xui8>) domain [2, 2, 5] maps [affine_map<(d0, d1, d2) -> (d0, (d1 * 8), d2)>, affine_map<(d0, d1, d2) -> (d0, ((d1 * 8) + 1), d2)>, affine_map<(d0, d1, d2) -> (d0, ((d1 * 8) + 2), d2)>, affine_map<(d0, d1, d2) -> (d0, ((d1 * 8) + 3), d2)>, affine_map<(d0, d1, d2) -> (d0, ((d1 * 8) + 4), d2)>, affine_map<(d0, d1, d2) -> (d0, ((d1 * 8) + 5), d2)>, affine_map<(d0, d1, d2) -> (d0, ((d1 * 8) + 6), d2)>, affine_map<(d0, d1, d2) -> (d0, ((d1 * 8) + 7), d2)>] {
      ^bb0(%16: ui8, %17: ui8, %18: ui8, %19: ui8, %20: ui8, %21: ui8, %22: ui8, %23: ui8):
        %24 = arith.bitcast %23 : ui8 to i8
        %25 = arith.extui %24 : i8 to i32
        %26 = arith.constant 24 : i32
        %27 = arith.shli %25, %26 : i32
        %28 = arith.bitcast %22 : ui8 to i8
        %29 = arith.extui %28 : i8 to i32
        %30 = arith.constant 16 : i32
        %31 = arith.shli %29, %30 : i32
        %32 = arith.bitcast %21 : ui8 to i8
        %33 = arith.extui %32 : i8 to i32
        %34 = arith.constant 8 : i32
        %35 = arith.shli %33, %34 : i32
        %36 = arith.bitcast %20 : ui8 to i8
        %37 = arith.extui %36 : i8 to i32
        %38 = arith.ori %37, %35 : i32
        %39 = arith.ori %38, %31 : i32
        %40 = arith.ori %39, %27 : i32
        %41 = arith.bitcast %19 : ui8 to i8
        %42 = arith.extui %41 : i8 to i32
        %43 = arith.constant 24 : i32
        %44 = arith.shli %42, %43 : i32
        %45 = arith.bitcast %18 : ui8 to i8
        %46 = arith.extui %45 : i8 to i32
        %47 = arith.constant 16 : i32
        %48 = arith.shli %46, %47 : i32
        %49 = arith.bitcast %17 : ui8 to i8
        %50 = arith.extui %49 : i8 to i32
        %51 = arith.constant 8 : i32
        %52 = arith.shli %50, %51 : i32
        %53 = arith.bitcast %16 : ui8 to i8
        %54 = arith.extui %53 : i8 to i32
        %55 = arith.ori %54, %52 : i32
        %56 = arith.ori %55, %48 : i32
        %57 = arith.ori %56, %44 : i32
        %58 = arith.constant 4 : i32
        %59 = arith.shli %40, %58 : i32
        %60 = arith.ori %57, %59 : i32
        tile.yield %60 : i32
      } -> tensor<2x2x5xi32>
      pg.yield %15 : tensor<2x2x5xi32>
    } : tensor<2x2x5xi32>
    %Transpose_2 = tile.map ins(%x : tensor<2x32xf32>) domain [2, 2, 16] maps [affine_map<(d0, d1, d2) -> (d0, ((d1 * 16) + d2))>] {
    ^bb0(%61: f32):
      tile.yield %61 : f32
    } -> tensor<2x2x16xf32>
    %62 = tile.reduce ins(%Transpose_2 : tensor<2x2x16xf32>) domain [2, 2, 16] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d1, d0, d2)>] epilogue_maps [] initial [0xff800000 : f32] {
    ^bb0(%63: f32, %64: f32):
      %65 = math.absf %63 : f32
      %66 = arith.maximumf %64, %65 : f32
      tile.yield %66 : f32
    } epilogue {
    ^bb0(%67: f32):
      tile.yield %67 : f32
    } -> tensor<2x2xf32>
    %Div, %68, %69 = tile.nest ins(%62, %Transpose_2 : tensor<2x2xf32>, tensor<2x2x16xf32>) domain [2, 2] step 2 : i64 {
    ^bb0(%70: tensor<2x2xf32>, %71: tensor<2x2x16xf32>):
      %Div_1 = tile.map ins(%70 : tensor<2x2xf32>) domain [2, 2, 1] maps [affine_map<(d0, d1, d2) -> (d1, d0)>] {
      ^bb0(%72: f32):
        %73 = arith.constant 1.270000e+02 : f32
        %74 = arith.divf %72, %73 : f32
        tile.yield %74 : f32
      } -> tensor<2x2x1xf32>
      %Cast = tile.map ins(%71, %Div_1, %70 : tensor<2x2x16xf32>, tensor<2x2x1xf32>, tensor<2x2xf32>) domain [2, 2, 16] maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, 0)>, affine_map<(d0, d1, d2) -> (d1, d0)>] {
      ^bb0(%75: f32, %76: f32, %77: f32):
        %78 = arith.constant 0.000000e+00 : f32
        %79 = arith.cmpf oeq, %77, %78 : f32
        %80 = arith.constant 1.000000e+00 : f32
        %81 = arith.select %79, %80, %76 : f32
        %82 = arith.divf %75, %81 : f32
        %83 = math.roundeven %82 : f32
        %84 = arith.fptosi %83 : f32 to i8
        tile.yield %84 : i8
      } -> tensor<2x2x16xi8>
      %85 = tile.map ins(%Cast, %Cast, %Cast, %Cast : tensor<2x2x16xi8>, tensor<2x2x16xi8>, tensor<2x2x16xi8>, tensor<2x2x16xi8>) domain [2, 2, 4] maps [affine_map<(d0, d1, d2) -> (d0, d1, (d2 * 4))>, affine_map<(d0, d1, d2) -> (d0, d1, ((d2 * 4) + 1))>, affine_map<(d0, d1, d2) -> (d0, d1, ((d2 * 4) + 2))>, affine_map<(d0, d1, d2) -> (d0, d1, ((d2 * 4) + 3))>] {
      ^bb0(%86: i8, %87: i8, %88: i8, %89: i8):
        %90 = arith.extsi %89 : i8 to i32
        %91 = arith.constant 24 : i32
        %92 = arith.shli %90, %91 : i32
        %93 = arith.extsi %88 : i8 to i32
        %94 = arith.constant 255 : i32
        %95 = arith.andi %93, %94 : i32
        %96 = arith.constant 16 : i32
        %97 = arith.shli %95, %96 : i32
        %98 = arith.extsi %87 : i8 to i32
        %99 = arith.constant 255 : i32
        %100 = arith.andi %98, %99 : i32
        %101 = arith.constant 8 : i32
        %102 = arith.shli %100, %101 : i32
        %103 = arith.extsi %86 : i8 to i32
        %104 = arith.constant 255 : i32
        %105 = arith.andi %103, %104 : i32
        %106 = arith.ori %105, %102 : i32
        %107 = arith.ori %106, %97 : i32
        %108 = arith.ori %107, %92 : i32
        tile.yield %108 : i32
      } -> tensor<2x2x4xi32>
      %109 = tile.reduce ins(%Cast : tensor<2x2x16xi8>) domain [2, 2, 16] parallel 2 : i64 maps [affine_map<(d0, d1, d2) -> (d0, d1, d2)>] epilogue_maps [] initial [0 : i32] {
      ^bb0(%110: i8, %111: i32):
        %112 = arith.extsi %110 : i8 to i32
        %113 = arith.addi %111, %112 : i32
        tile.yield %113 : i32
      } epilogue {
      ^bb0(%114: i32):
        %115 = arith.sitofp %114 : i32 to f32
        %116 = arith.constant 8.000000e+00 : f32
        %117 = arith.mulf %115, %116 : f32
        tile.yield %117 : f32
      } -> tensor<2x2xf32>
      tile.yield %Div_1, %85, %109 : tensor<2x2x1xf32>, tensor<2x2x4xi32>, tensor<2x2xf32>
    } -> tensor<2x2x1xf32>, tensor<2x2x4xi32>, tensor<2x2xf32>
    %Mul = tile.view %69 : tensor<2x2xf32> -> tensor<2x2x1xf32>
    %ReduceSum = tile.contract %68, %10 : tensor<2x2x4xi32>, tensor<2x2x5xi32> block_inputs(%Transpose_1, %Div, %Mul : tensor<2x1x5xf32>, tensor<2x2x1xf32>, tensor<2x2x1xf32>) domain [2, 5, 2, 2, 2] parallel 2 : i64 maps [affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, ((d3 * 2) + d4))>, affine_map<(d0, d1, d2, d3, d4) -> (d2, d3, d1)>] epilogue_maps [] words "i8u8" parts <dim 4, bits 4, mask 252645135> epilogue {
    ^bb0(%70: f32):
      tile.yield %70 : f32
    } block {
    ^bb0(%71: i32, %72: f32, %73: f32, %74: f32):
      %75 = arith.sitofp %71 : i32 to f32
      %76 = arith.subf %75, %74 : f32
      %77 = arith.mulf %76, %73 : f32
      %78 = arith.mulf %77, %72 : f32
      tile.yield %78 : f32
    } loops 1 : i64 block_maps [affine_map<(d0, d1, d2) -> (d2, 0, d1)>, affine_map<(d0, d1, d2) -> (d0, d2, 0)>, affine_map<(d0, d1, d2) -> (d0, d2, 0)>] -> tensor<2x5xf32>
    pg.return [#pg.bytes<"y">], %ReduceSum : tensor<2x5xf32>
  }
}
