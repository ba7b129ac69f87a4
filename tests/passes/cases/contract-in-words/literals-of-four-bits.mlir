// 4-bit literals are packed eight in a word, and unpacked to two words of bytes at each read.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x16xi8>):
    %1 = graphcore.cast %0 {to = i32} : (tensor<2x16xi8>) -> tensor<2x16xi32>
    %2 = pg.constant #pg.data<"000f000f050a050a0a050a050f000f00040b040b090609060e010e01030c030c080708070d020d02020d020d070807080c030c03010e010e060906090b040b04" : tensor<16x4xui8>>
    %3 = graphcore.cast %2 {to = i32} : (tensor<16x4xui8>) -> tensor<16x4xi32>
    %4 = graphcore.mat_mul %1, %3 : (tensor<2x16xi32>, tensor<16x4xi32>) -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %4 : tensor<2x4xi32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">] {
  ^bb0(%0: tensor<2x16xi8>):
    %1 = pg.constant #pg.data<"000f000f050a050a0a050a050f000f00040b040b090609060e010e01030c030c080708070d020d02020d020d070807080c030c03010e010e060906090b040b04" : tensor<16x4xui8>>
    %2 = graphcore.slice %0 {starts = [0, 0], sizes = [2, 4], steps = [1, 4]} : (tensor<2x16xi8>) -> tensor<2x4xi8>
    %3 = graphcore.cast %2 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %4 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %5 = graphcore.and %3, %4 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %6 = graphcore.slice %0 {starts = [0, 1], sizes = [2, 4], steps = [1, 4]} : (tensor<2x16xi8>) -> tensor<2x4xi8>
    %7 = graphcore.cast %6 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %8 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %9 = graphcore.and %7, %8 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %10 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %11 = graphcore.shift %9, %10 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %12 = graphcore.or %5, %11 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %13 = graphcore.slice %0 {starts = [0, 2], sizes = [2, 4], steps = [1, 4]} : (tensor<2x16xi8>) -> tensor<2x4xi8>
    %14 = graphcore.cast %13 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %15 = pg.constant #pg.data<"ff000000" : tensor<i32>>
    %16 = graphcore.and %14, %15 : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %17 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %18 = graphcore.shift %16, %17 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %19 = graphcore.or %12, %18 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %20 = graphcore.slice %0 {starts = [0, 3], sizes = [2, 4], steps = [1, 4]} : (tensor<2x16xi8>) -> tensor<2x4xi8>
    %21 = graphcore.cast %20 {to = i32} : (tensor<2x4xi8>) -> tensor<2x4xi32>
    %22 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %23 = graphcore.shift %21, %22 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %24 = graphcore.or %19, %23 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %25 = graphcore.slice %1 {starts = [0, 0], sizes = [4, 4], steps = [4, 1]} : (tensor<16x4xui8>) -> tensor<4x4xui8>
    %26 = graphcore.cast %25 {to = i32} : (tensor<4x4xui8>) -> tensor<4x4xi32>
    %27 = graphcore.slice %1 {starts = [1, 0], sizes = [4, 4], steps = [4, 1]} : (tensor<16x4xui8>) -> tensor<4x4xui8>
    %28 = graphcore.cast %27 {to = i32} : (tensor<4x4xui8>) -> tensor<4x4xi32>
    %29 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %30 = graphcore.shift %28, %29 {direction = "left"} : (tensor<4x4xi32>, tensor<i32>) -> tensor<4x4xi32>
    %31 = graphcore.or %26, %30 : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
    %32 = graphcore.slice %1 {starts = [2, 0], sizes = [4, 4], steps = [4, 1]} : (tensor<16x4xui8>) -> tensor<4x4xui8>
    %33 = graphcore.cast %32 {to = i32} : (tensor<4x4xui8>) -> tensor<4x4xi32>
    %34 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %35 = graphcore.shift %33, %34 {direction = "left"} : (tensor<4x4xi32>, tensor<i32>) -> tensor<4x4xi32>
    %36 = graphcore.or %31, %35 : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
    %37 = graphcore.slice %1 {starts = [3, 0], sizes = [4, 4], steps = [4, 1]} : (tensor<16x4xui8>) -> tensor<4x4xui8>
    %38 = graphcore.cast %37 {to = i32} : (tensor<4x4xui8>) -> tensor<4x4xi32>
    %39 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %40 = graphcore.shift %38, %39 {direction = "left"} : (tensor<4x4xi32>, tensor<i32>) -> tensor<4x4xi32>
    %41 = graphcore.or %36, %40 : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
    %42 = graphcore.slice %41 {starts = [0, 0], sizes = [2, 4], steps = [2, 1]} : (tensor<4x4xi32>) -> tensor<2x4xi32>
    %43 = graphcore.slice %41 {starts = [1, 0], sizes = [2, 4], steps = [2, 1]} : (tensor<4x4xi32>) -> tensor<2x4xi32>
    %44 = pg.constant #pg.data<"04000000" : tensor<i32>>
    %45 = graphcore.shift %43, %44 {direction = "left"} : (tensor<2x4xi32>, tensor<i32>) -> tensor<2x4xi32>
    %46 = graphcore.or %42, %45 : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
    %47 = graphcore.parts %46 {axis = 0, count = 2, bits = 4, mask = 252645135} : (tensor<2x4xi32>) -> tensor<4x4xi32>
    %48 = graphcore.dot_mat_mul %24, %47 {words = "i8u7"} : (tensor<2x4xi32>, tensor<4x4xi32>) -> tensor<2x4xi32>
    pg.return [#pg.bytes<"y">], %48 : tensor<2x4xi32>
  }
}
