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
    %3 = graphcore.slice %0 {starts = [0, 0], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xui8>) -> tensor<2x2xui8>
    %4 = graphcore.cast %3 {to = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
    %5 = graphcore.slice %0 {starts = [0, 1], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xui8>) -> tensor<2x2xui8>
    %6 = graphcore.cast %5 {to = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
    %7 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %8 = graphcore.shift %6, %7 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %9 = graphcore.or %4, %8 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %10 = graphcore.slice %0 {starts = [0, 2], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xui8>) -> tensor<2x2xui8>
    %11 = graphcore.cast %10 {to = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
    %12 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %13 = graphcore.shift %11, %12 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %14 = graphcore.or %9, %13 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %15 = graphcore.slice %0 {starts = [0, 3], sizes = [2, 2], steps = [1, 4]} : (tensor<2x8xui8>) -> tensor<2x2xui8>
    %16 = graphcore.cast %15 {to = i32} : (tensor<2x2xui8>) -> tensor<2x2xi32>
    %17 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %18 = graphcore.shift %16, %17 {direction = "left"} : (tensor<2x2xi32>, tensor<i32>) -> tensor<2x2xi32>
    %19 = graphcore.or %14, %18 : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    %20 = graphcore.slice %2 {starts = [0, 0], sizes = [2, 4], steps = [4, 1]} : (tensor<8x4xi8>) -> tensor<2x4xi8>
    %21 = graphcore.cast %20 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %22 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %23 = graphcore.and %21, %22 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %24 = graphcore.slice %2 {starts = [1, 0], sizes = [2, 4], steps = [4, 1]} : (tensor<8x4xi8>) -> tensor<2x4xi8>
    %25 = graphcore.cast %24 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %26 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %27 = graphcore.and %25, %26 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %28 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %29 = graphcore.shift %27, %28 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %30 = graphcore.or %23, %29 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %31 = graphcore.slice %2 {starts = [2, 0], sizes = [2, 4], steps = [4, 1]} : (tensor<8x4xi8>) -> tensor<2x4xi8>
    %32 = graphcore.cast %31 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %33 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %34 = graphcore.and %32, %33 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %35 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %36 = graphcore.shift %34, %35 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %37 = graphcore.or %30, %36 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %38 = graphcore.slice %2 {starts = [3, 0], sizes = [2, 4], steps = [4, 1]} : (tensor<8x4xi8>) -> tensor<2x4xi8>
    %39 = graphcore.cast %38 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %40 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %41 = graphcore.shift %39, %40 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %42 = graphcore.or %37, %41 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %43 = graphcore.dot_mat_mul %19, %42 {words = "u8i7"} : (tensor<2x2xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %44 = pg.constant #pg.data<"24000000dcffffff24000000dcffffff" : tensor<1x4xi32>>
    %45 = graphcore.mul %1, %44 : (tensor<i32>, tensor<1x4xi32>) -> tensor<1x4xi32>
    %46 = graphcore.sub %43, %45 : (tensor<2x4xi32>, tensor<1x4xi32>) -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %46 : tensor<2x4xi32>
  }
}
