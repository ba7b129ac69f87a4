// Small weights are multiplied four at a time by bytes; the zero point of these is subtracted from the sums.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"zero">] {
  ^bb0(%0: tensor<2x8xui8>, %1: tensor<i32>):
    %2 = pg.constant #pg.data<"01fe01fe03fc03fc05fa05fa07f807f808f908f906fb06fb04fd04fd02ff02ff" : tensor<8x4xi8>>
    %3 = graphcore.cast %0 {to = i32} : (tensor<2x8xui8>) -> tensor<2x8xi32>
    %4 = graphcore.sub %3, %1 : (tensor<2x8xi32>, tensor<i32>) -> tensor<2x8xi32>
    %5 = graphcore.cast %2 {to = i32} : (tensor<8x4xi8>) -> tensor<8x4xi32>
    %6 = graphcore.mat_mul %4, %5 : (tensor<2x8xi32>, tensor<8x4xi32>) -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %6 : tensor<2x4xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"zero">] {
  ^bb0(%0: tensor<2x8xui8>, %1: tensor<i32>):
    %2 = pg.constant #pg.data<"01fe01fe03fc03fc05fa05fa07f807f808f908f906fb06fb04fd04fd02ff02ff" : tensor<8x4xi8>>
    %3 = graphcore.cast %2 {to = i32} : (tensor<8x4xi8>) -> tensor<8x4xi32>
    %4 = graphcore.slice %0 {starts = [0, 0], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xui8>) -> tensor<2x2xui8>
    %5 = graphcore.cast %4 {to = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
    %6 = graphcore.slice %0 {starts = [0, 1], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xui8>) -> tensor<2x2xui8>
    %7 = graphcore.cast %6 {to = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
    %8 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %9 = graphcore.shift %7, %8 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %10 = graphcore.or %5, %9 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %11 = graphcore.slice %0 {starts = [0, 2], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xui8>) -> tensor<2x2xui8>
    %12 = graphcore.cast %11 {to = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
    %13 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %14 = graphcore.shift %12, %13 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %15 = graphcore.or %10, %14 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %16 = graphcore.slice %0 {starts = [0, 3], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xui8>) -> tensor<2x2xui8>
    %17 = graphcore.cast %16 {to = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
    %18 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %19 = graphcore.shift %17, %18 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %20 = graphcore.or %15, %19 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %21 = graphcore.slice %2 {starts = [0, 0], sizes = [2, 4], steps = [4, 1]} : (tensor<8x4xi8>) -> tensor<2x4xi8>
    %22 = graphcore.cast %21 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %23 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %24 = graphcore.and %22, %23 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %25 = graphcore.slice %2 {starts = [1, 0], sizes = [2, 4], steps = [4, 1]} : (tensor<8x4xi8>) -> tensor<2x4xi8>
    %26 = graphcore.cast %25 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %27 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %28 = graphcore.and %26, %27 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %29 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %30 = graphcore.shift %28, %29 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %31 = graphcore.or %24, %30 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %32 = graphcore.slice %2 {starts = [2, 0], sizes = [2, 4], steps = [4, 1]} : (tensor<8x4xi8>) -> tensor<2x4xi8>
    %33 = graphcore.cast %32 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %34 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %35 = graphcore.and %33, %34 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %36 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %37 = graphcore.shift %35, %36 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %38 = graphcore.or %31, %37 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %39 = graphcore.slice %2 {starts = [3, 0], sizes = [2, 4], steps = [4, 1]} : (tensor<8x4xi8>) -> tensor<2x4xi8>
    %40 = graphcore.cast %39 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %41 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %42 = graphcore.shift %40, %41 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %43 = graphcore.or %38, %42 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %44 = graphcore.dot_mat_mul %20, %43 {words = "u8i7"} : (tensor<2x2xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %45 = graphcore.reduce_sum %3 {axes = [0], keepdims = true} : (tensor<8x4xi32>) -> tensor<1x4xi32>
    %46 = graphcore.mul %1, %45 : (tensor<i32>, tensor<1x4xi32>) -> tensor<1x4xi32>
    %47 = graphcore.sub %44, %46 : (tensor<2x4xi32>, tensor<1x4xi32>) -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %47 : tensor<2x4xi32>
  }
}
