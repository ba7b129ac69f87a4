// Small weights are multiplied four at a time by bytes whose zero point comes off the sums.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"zero">] {
  ^bb0(%0: tensor<2x8xui8>, %1: tensor<i32>):
    %2 = pg.constant #pg.data<"01fe03fc05fa07f808f906fb04fd02ff" : tensor<8x2xi8>>
    %3 = graphcore.cast %0 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    %4 = graphcore.sub %3, %1 : (tensor<2x8xi32>, tensor<i32>) -> tensor<2x8xi32>
    %5 = graphcore.cast %2 {to = i32} : (tensor<8x2xi8>) -> tensor<8x2xi32>
    %6 = graphcore.mat_mul %4, %5 : (tensor<2x8xi32>, tensor<8x2xi32>) -> tensor<2x2xi32>
    pg.return [#pg.bytes<"y">], %6 : tensor<2x2xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"zero">] {
  ^bb0(%0: tensor<2x8xui8>, %1: tensor<i32>):
    %2 = pg.constant #pg.data<"01fe03fc05fa07f808f906fb04fd02ff" : tensor<8x2xi8>>
    %3 = graphcore.cast %0 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    %4 = graphcore.cast %2 {to = i32} : (tensor<8x2xi8>) -> tensor<8x2xi32>
    %5 = graphcore.slice %3 {starts = [0, 0], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xi32>) -> tensor<2x2xi32>
    %6 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %7 = graphcore.and %5, %6 : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %8 = graphcore.slice %3 {starts = [0, 1], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xi32>) -> tensor<2x2xi32>
    %9 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %10 = graphcore.and %8, %9 : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %11 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %12 = graphcore.shift %10, %11 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %13 = graphcore.or %7, %12 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %14 = graphcore.slice %3 {starts = [0, 2], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xi32>) -> tensor<2x2xi32>
    %15 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %16 = graphcore.and %14, %15 : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %17 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %18 = graphcore.shift %16, %17 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %19 = graphcore.or %13, %18 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %20 = graphcore.slice %3 {starts = [0, 3], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xi32>) -> tensor<2x2xi32>
    %21 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %22 = graphcore.shift %20, %21 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %23 = graphcore.or %19, %22 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %24 = graphcore.slice %4 {starts = [0, 0], sizes = [2, 2], steps = [4, 1]} : (tensor<8x2xi32>) -> tensor<2x2xi32>
    %25 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %26 = graphcore.and %24, %25 : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %27 = graphcore.slice %4 {starts = [1, 0], sizes = [2, 2], steps = [4, 1]} : (tensor<8x2xi32>) -> tensor<2x2xi32>
    %28 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %29 = graphcore.and %27, %28 : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %30 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %31 = graphcore.shift %29, %30 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %32 = graphcore.or %26, %31 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %33 = graphcore.slice %4 {starts = [2, 0], sizes = [2, 2], steps = [4, 1]} : (tensor<8x2xi32>) -> tensor<2x2xi32>
    %34 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %35 = graphcore.and %33, %34 : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %36 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %37 = graphcore.shift %35, %36 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %38 = graphcore.or %32, %37 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %39 = graphcore.slice %4 {starts = [3, 0], sizes = [2, 2], steps = [4, 1]} : (tensor<8x2xi32>) -> tensor<2x2xi32>
    %40 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %41 = graphcore.shift %39, %40 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %42 = graphcore.or %38, %41 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %43 = graphcore.dot_mat_mul %23, %42 {words = "u8i7"} : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %44 = graphcore.reduce_sum %4 {axes = [0], keepdims = true} : (tensor<8x2xi32>) -> tensor<1x2xi32>
    %45 = graphcore.mul %1, %44 : (tensor<i32>, tensor<1x2xi32>) -> tensor<1x2xi32>
    %46 = graphcore.sub %43, %45 : (tensor<2x2xi32>, tensor<1x2xi32>) -> tensor<2x2xi32>
    pg.return [#pg.bytes<"y">], %46 : tensor<2x2xi32>
  }
}
