// Rows of two indices are compared 16 at a time, each index with the bounds of its column; the last
// three rows are compared afterwards.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"i">] {
  ^bb0(%x: tensor<2x3xf32>, %i: tensor<5x7x2xi32>):
    %c = graphcore.check_indices %i {low = [-2, -3], last = [1, 2], what = #pg.bytes<"index">, place = #pg.bytes<"node 'a' (GatherND)">} : (tensor<5x7x2xi32>) -> tensor<5x7x2xi32>
    pg.return [#pg.bytes<"a">], %c : tensor<5x7x2xi32>
  }
}
// -----
#data = #pg.data<"02000000030000000200000003000000020000000300000002000000030000000200000003000000020000000300000002000000030000000200000003000000"
    "02000000030000000200000003000000020000000300000002000000030000000200000003000000020000000300000002000000030000000200000003000000" : tensor<32xui32>>
#check = #pg.index_check<#pg.bytes<"check of node 'a' (GatherND)">, #pg.bytes<"index">, #pg.bytes<"node 'a' (GatherND)">, #pg.ints[-2, -3], #pg.ints[1, 2]>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"i">] {
  ^bb0(%x: tensor<2x3xf32>, %i: tensor<5x7x2xi32>):
    %0 = graphcore.reshape %i {shape = [35, 2]} : (tensor<5x7x2xi32>) -> tensor<35x2xi32>
    %1 = graphcore.slice %0 {starts = [0, 0], sizes = [32, 2], steps = [1, 1]} : (tensor<35x2xi32>) -> tensor<32x2xi32>
    %2 = graphcore.reshape %1 {shape = [2, 32]} : (tensor<32x2xi32>) -> tensor<2x32xi32>
    %3 = graphcore.cast %2 {to = ui32} : (tensor<2x32xi32>) -> tensor<2x32xui32>
    %4 = pg.constant #data
    %5 = graphcore.add %3, %4 : (tensor<2x32xui32>, tensor<32xui32>) -> tensor<2x32xui32>
    %6 = graphcore.reduce_max %5 {axes = [0], keepdims = false} : (tensor<2x32xui32>) -> tensor<32xui32>
    %7 = graphcore.reshape %6 {shape = [16, 2]} : (tensor<32xui32>) -> tensor<16x2xui32>
    %8 = graphcore.reduce_max %7 {axes = [0], keepdims = false} : (tensor<16x2xui32>) -> tensor<2xui32>
    %9 = graphcore.slice %0 {starts = [32, 0], sizes = [3, 2], steps = [1, 1]} : (tensor<35x2xi32>) -> tensor<3x2xi32>
    %10 = graphcore.cast %9 {to = ui32} : (tensor<3x2xi32>) -> tensor<3x2xui32>
    %11 = pg.constant #pg.data<"0200000003000000" : tensor<2xui32>>
    %12 = graphcore.add %10, %11 : (tensor<3x2xui32>, tensor<2xui32>) -> tensor<3x2xui32>
    %13 = graphcore.reduce_max %12 {axes = [0], keepdims = false} : (tensor<3x2xui32>) -> tensor<2xui32>
    %14 = graphcore.max %8, %13 : (tensor<2xui32>, tensor<2xui32>) -> tensor<2xui32>
    pg.return [#pg.bytes<"a">, #pg.bytes<"check of node 'a' (GatherND)">], %i, %14 : tensor<5x7x2xi32>, tensor<2xui32> checks [#check]
  }
}
