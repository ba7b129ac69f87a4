// An index outside its bounds, on either side, is the largest unsigned distance; ignored labels do not
// count. Every column has its own bounds.
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
#check = #pg.index_check<#pg.bytes<"check of node 'a' (Gather)">, #pg.bytes<"index">, #pg.bytes<"node 'a' (Gather)">, #pg.ints[-5], #pg.ints[4]>
#check1 = #pg.index_check<#pg.bytes<"check of node 'b' (GatherND)">, #pg.bytes<"index">, #pg.bytes<"node 'b' (GatherND)">, #pg.ints[-5, -4], #pg.ints[4, 3]>
#check2 = #pg.index_check<#pg.bytes<"check of node 'b' (GatherND)'">, #pg.bytes<"label">, #pg.bytes<"node 'b' (GatherND)">, #pg.ints[0], #pg.ints[9]>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"i">, #pg.bytes<"j">, #pg.bytes<"labels">] {
  ^bb0(%x: tensor<5x4xf32>, %i: tensor<3xi64>, %j: tensor<2x2xi32>, %labels: tensor<3xi16>):
    %0 = graphcore.cast %i {to = ui64} : (tensor<3xi64>) -> tensor<3xui64>
    %1 = pg.constant #pg.data<"0500000000000000" : tensor<ui64>>
    %2 = graphcore.add %0, %1 : (tensor<3xui64>, tensor<ui64>) -> tensor<3xui64>
    %3 = graphcore.reduce_max %2 {axes = [0], keepdims = false} : (tensor<3xui64>) -> tensor<ui64>
    %4 = pg.constant #pg.data<"0000000000000000" : tensor<i64>>
    %5 = graphcore.compare %i, %4 {predicate = "lt"} : (tensor<3xi64>, tensor<i64>) -> tensor<3xi1>
    %6 = pg.constant #pg.data<"0500000000000000" : tensor<i64>>
    %7 = graphcore.add %i, %6 : (tensor<3xi64>, tensor<i64>) -> tensor<3xi64>
    %8 = graphcore.where %5, %7, %i : (tensor<3xi1>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
    %9 = graphcore.cast %8 {to = ui64} : (tensor<3xi64>) -> tensor<3xui64>
    %a = graphcore.gather %x, %9 {axis = 0} : (tensor<5x4xf32>, tensor<3xui64>) -> tensor<3x4xf32>
    %10 = graphcore.cast %j {to = ui32} : (tensor<2x2xi32>) -> tensor<2x2xui32>
    %11 = pg.constant #pg.data<"0500000004000000" : tensor<2xui32>>
    %12 = graphcore.add %10, %11 : (tensor<2x2xui32>, tensor<2xui32>) -> tensor<2x2xui32>
    %13 = graphcore.reduce_max %12 {axes = [0], keepdims = false} : (tensor<2x2xui32>) -> tensor<2xui32>
    %14 = graphcore.cast %labels {to = i64} : (tensor<3xi16>) -> tensor<3xi64>
    %15 = pg.constant #pg.data<"ffffffffffffffff" : tensor<i64>>
    %16 = graphcore.compare %14, %15 {predicate = "ne"} : (tensor<3xi64>, tensor<i64>) -> tensor<3xi1>
    %17 = pg.constant #pg.data<"0000000000000000" : tensor<i64>>
    %18 = graphcore.where %16, %14, %17 : (tensor<3xi1>, tensor<3xi64>, tensor<i64>) -> tensor<3xi64>
    %19 = graphcore.cast %18 {to = ui64} : (tensor<3xi64>) -> tensor<3xui64>
    %20 = graphcore.reduce_max %19 {axes = [0], keepdims = false} : (tensor<3xui64>) -> tensor<ui64>
    pg.return [#pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"c">, #pg.bytes<"check of node 'a' (Gather)">, #pg.bytes<"check of node 'b' (GatherND)">, #pg.bytes<"check of node 'b' (GatherND)'">],
        %a, %j, %labels, %3, %13, %20 : tensor<3x4xf32>, tensor<2x2xi32>, tensor<3xi16>, tensor<ui64>, tensor<2xui32>,
        tensor<ui64> checks [#check, #check1, #check2]
  }
}
