// What is outside of its bounds, on either side, is the largest unsigned distance; what stands for
// no index does not count. Every column has its own bounds.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"i">, #pg.bytes<"j">, #pg.bytes<"labels">] {
  ^bb0(%x: tensor<5x4xf32>, %i: tensor<3xi64>, %j: tensor<2x2xi32>, %labels: tensor<3xi16>):
    %ci = graphcore.check_indices %i {low = [-5], last = [4], what = #pg.bytes<"index">, place = #pg.bytes<"node 'a' (Gather)">} : (tensor<3xi64>) -> tensor<3xi64>
    %a = graphcore.gather %x, %ci {axis = 0} : (tensor<5x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
    %cj = graphcore.check_indices %j {low = [-5, -4], last = [4, 3], what = #pg.bytes<"index">, place = #pg.bytes<"node 'b' (GatherND)">} : (tensor<2x2xi32>) -> tensor<2x2xi32>
    %cl = graphcore.check_indices %labels {low = [0], last = [9], ignored = -1, what = #pg.bytes<"label">, place = #pg.bytes<"node 'b' (GatherND)">} : (tensor<3xi16>) -> tensor<3xi16>
    pg.return [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"c">], %a, %cj, %cl : tensor<3x4xf32>, tensor<2x2xi32>, tensor<3xi16>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"i">, #pg.bytes<"j">, #pg.bytes<"labels">] {
  ^bb0(%x: tensor<5x4xf32>, %i: tensor<3xi64>, %j: tensor<2x2xi32>, %labels: tensor<3xi16>):
    %0 = graphcore.cast %i {to = ui64} : (tensor<3xi64>) -> tensor<3xui64>
    %1 = pg.constant #pg.data<"0500000000000000" : tensor<ui64>>
    %2 = graphcore.add %0, %1 : (tensor<3xui64>, tensor<ui64>) -> tensor<3xui64>
    %3 = graphcore.reduce_max %2 {axes = [0], keepdims = false} : (tensor<3xui64>) -> tensor<ui64>
    %a = graphcore.gather %x, %i {axis = 0} : (tensor<5x4xf32>, tensor<3xi64>) -> tensor<3x4xf32>
    %4 = graphcore.cast %j {to = ui32} : (tensor<2x2xi32>) -> tensor<2x2xui32>
    %5 = pg.constant #pg.data<"0500000004000000" : tensor<2xui32>>
    %6 = graphcore.add %4, %5 : (tensor<2x2xui32>, tensor<2xui32>) -> tensor<2x2xui32>
    %7 = graphcore.reduce_max %6 {axes = [0], keepdims = false} : (tensor<2x2xui32>) -> tensor<2xui32>
    %8 = graphcore.cast %labels {to = i64} : (tensor<3xi16>) -> tensor<3xi64>
    %9 = pg.constant #pg.data<"ffffffffffffffff" : tensor<i64>>
    %10 = graphcore.compare %8, %9 {predicate = "ne"} : (tensor<3xi64>, tensor<i64>) -> tensor<3xi1>
    %11 = pg.constant #pg.data<"0000000000000000" : tensor<i64>>
    %12 = graphcore.where %10, %8, %11 : (tensor<3xi1>, tensor<3xi64>, tensor<i64>) -> tensor<3xi64>
    %13 = graphcore.cast %12 {to = ui64} : (tensor<3xi64>) -> tensor<3xui64>
    %14 = graphcore.reduce_max %13 {axes = [0], keepdims = false} : (tensor<3xui64>) -> tensor<ui64>
    pg.return [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"c">, #pg.bytes<"check of node 'a' (Gather)">, #pg.bytes<"check of node 'b' (GatherND)">, #pg.bytes<"check of node 'b' (GatherND)'">], %a, %j, %labels, %3, %7, %14 : tensor<3x4xf32>, tensor<2x2xi32>, tensor<3xi16>, tensor<ui64>, tensor<2xui32>, tensor<ui64> checks [#pg.index_check<#pg.bytes<"check of node 'a' (Gather)">, #pg.bytes<"index">, #pg.bytes<"node 'a' (Gather)">, #pg.ints[-5], #pg.ints[4]>, #pg.index_check<#pg.bytes<"check of node 'b' (GatherND)">, #pg.bytes<"index">, #pg.bytes<"node 'b' (GatherND)">, #pg.ints[-5, -4], #pg.ints[4, 3]>, #pg.index_check<#pg.bytes<"check of node 'b' (GatherND)'">, #pg.bytes<"label">, #pg.bytes<"node 'b' (GatherND)">, #pg.ints[0], #pg.ints[9]>]
  }
}
