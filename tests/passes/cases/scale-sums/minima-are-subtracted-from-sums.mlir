// Minima of blocks, as in GGUF's 4-bit formats, are multiplied by the sums of blocks of x: weights stay packed.
// -p scale-sums{streamed-l2=0}
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x32xf32>):
    %w = pg.constant #pg.data<"00050a0f04090e03080d02070c01060b00050a0f04090e03080d02070c01060b00050a0f04090e03080d02070c01060b00050a0f04090e03080d02070c01060b" : tensor<2x2x16xui8>>
    %m = pg.constant #pg.data<"0f" : tensor<ui8>>
    %s = pg.constant #pg.data<"0000803f000000400000003f0000803e" : tensor<2x2x1xf32>>
    %l = pg.constant #pg.data<"00000040000080400000803f0000003f" : tensor<2x2x1xf32>>
    %0 = graphcore.and %w, %m : (tensor<2x2x16xui8>, tensor<ui8>) -> tensor<2x2x16xui8>
    %1 = graphcore.cast %0 {to = f32} : (tensor<2x2x16xui8>) -> tensor<2x2x16xf32>
    %2 = graphcore.mul %1, %s : (tensor<2x2x16xf32>, tensor<2x2x1xf32>) -> tensor<2x2x16xf32>
    %3 = graphcore.sub %2, %l : (tensor<2x2x16xf32>, tensor<2x2x1xf32>) -> tensor<2x2x16xf32>
    %4 = graphcore.reshape %3 {shape = [2, 32]} : (tensor<2x2x16xf32>) -> tensor<2x32xf32>
    %5 = graphcore.transpose %4 {perm = [1, 0]} : (tensor<2x32xf32>) -> tensor<32x2xf32>
    %y = graphcore.mat_mul %x, %5 : (tensor<2x32xf32>, tensor<32x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x2xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x32xf32>):
    %w = pg.constant #pg.data<"00050a0f04090e03080d02070c01060b00050a0f04090e03080d02070c01060b00050a0f04090e03080d02070c01060b00050a0f04090e03080d02070c01060b" : tensor<2x2x16xui8>>
    %m = pg.constant #pg.data<"0f" : tensor<ui8>>
    %0 = graphcore.and %w, %m : (tensor<2x2x16xui8>, tensor<ui8>) -> tensor<2x2x16xui8>
    %1 = graphcore.reshape %x {shape = [2, 2, 16]} : (tensor<2x32xf32>) -> tensor<2x2x16xf32>
    %2 = graphcore.transpose %1 {perm = [1, 0, 2]} : (tensor<2x2x16xf32>) -> tensor<2x2x16xf32>
    %3 = graphcore.cast %0 {to = i8} : (tensor<2x2x16xui8>) -> tensor<2x2x16xi8>
    %4 = graphcore.reshape %3 {shape = [2, 32]} : (tensor<2x2x16xi8>) -> tensor<2x32xi8>
    %5 = graphcore.transpose %4 {perm = [1, 0]} : (tensor<2x32xi8>) -> tensor<32x2xi8>
    %6 = graphcore.reshape %5 {shape = [2, 16, 2]} : (tensor<32x2xi8>) -> tensor<2x16x2xi8>
    %7 = graphcore.cast %6 {to = i32} : (tensor<2x16x2xi8>) -> tensor<2x16x2xi32>
    %8 = pg.constant #pg.data<"00000000" : tensor<i32>>
    %9 = graphcore.sub %7, %8 : (tensor<2x16x2xi32>, tensor<i32>) -> tensor<2x16x2xi32>
    %10 = graphcore.cast %9 {to = ui8} : (tensor<2x16x2xi32>) -> tensor<2x16x2xui8>
    %11 = graphcore.slice %10 {starts = [0, 0, 0], sizes = [2, 2, 2], steps = [1, 8, 1]} : (tensor<2x16x2xui8>) -> tensor<2x2x2xui8>
    %12 = graphcore.cast %11 {to = i32} : (tensor<2x2x2xui8>) -> tensor<2x2x2xi32>
    %13 = pg.constant #pg.data<"0f000000" : tensor<i32>>
    %14 = graphcore.and %12, %13 : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %15 = graphcore.slice %10 {starts = [0, 1, 0], sizes = [2, 2, 2], steps = [1, 8, 1]} : (tensor<2x16x2xui8>) -> tensor<2x2x2xui8>
    %16 = graphcore.cast %15 {to = i32} : (tensor<2x2x2xui8>) -> tensor<2x2x2xi32>
    %17 = pg.constant #pg.data<"0f000000" : tensor<i32>>
    %18 = graphcore.and %16, %17 : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %19 = pg.constant #pg.data<"04000000" : tensor<i32>>
    %20 = graphcore.shift %18, %19 {direction = "left"} : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %21 = graphcore.or %14, %20 : (tensor<2x2x2xi32>, tensor<2x2x2xi32>) -> tensor<2x2x2xi32>
    %22 = graphcore.slice %10 {starts = [0, 2, 0], sizes = [2, 2, 2], steps = [1, 8, 1]} : (tensor<2x16x2xui8>) -> tensor<2x2x2xui8>
    %23 = graphcore.cast %22 {to = i32} : (tensor<2x2x2xui8>) -> tensor<2x2x2xi32>
    %24 = pg.constant #pg.data<"0f000000" : tensor<i32>>
    %25 = graphcore.and %23, %24 : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %26 = pg.constant #pg.data<"08000000" : tensor<i32>>
    %27 = graphcore.shift %25, %26 {direction = "left"} : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %28 = graphcore.or %21, %27 : (tensor<2x2x2xi32>, tensor<2x2x2xi32>) -> tensor<2x2x2xi32>
    %29 = graphcore.slice %10 {starts = [0, 3, 0], sizes = [2, 2, 2], steps = [1, 8, 1]} : (tensor<2x16x2xui8>) -> tensor<2x2x2xui8>
    %30 = graphcore.cast %29 {to = i32} : (tensor<2x2x2xui8>) -> tensor<2x2x2xi32>
    %31 = pg.constant #pg.data<"0f000000" : tensor<i32>>
    %32 = graphcore.and %30, %31 : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %33 = pg.constant #pg.data<"0c000000" : tensor<i32>>
    %34 = graphcore.shift %32, %33 {direction = "left"} : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %35 = graphcore.or %28, %34 : (tensor<2x2x2xi32>, tensor<2x2x2xi32>) -> tensor<2x2x2xi32>
    %36 = graphcore.slice %10 {starts = [0, 4, 0], sizes = [2, 2, 2], steps = [1, 8, 1]} : (tensor<2x16x2xui8>) -> tensor<2x2x2xui8>
    %37 = graphcore.cast %36 {to = i32} : (tensor<2x2x2xui8>) -> tensor<2x2x2xi32>
    %38 = pg.constant #pg.data<"0f000000" : tensor<i32>>
    %39 = graphcore.and %37, %38 : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %40 = pg.constant #pg.data<"10000000" : tensor<i32>>
    %41 = graphcore.shift %39, %40 {direction = "left"} : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %42 = graphcore.or %35, %41 : (tensor<2x2x2xi32>, tensor<2x2x2xi32>) -> tensor<2x2x2xi32>
    %43 = graphcore.slice %10 {starts = [0, 5, 0], sizes = [2, 2, 2], steps = [1, 8, 1]} : (tensor<2x16x2xui8>) -> tensor<2x2x2xui8>
    %44 = graphcore.cast %43 {to = i32} : (tensor<2x2x2xui8>) -> tensor<2x2x2xi32>
    %45 = pg.constant #pg.data<"0f000000" : tensor<i32>>
    %46 = graphcore.and %44, %45 : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %47 = pg.constant #pg.data<"14000000" : tensor<i32>>
    %48 = graphcore.shift %46, %47 {direction = "left"} : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %49 = graphcore.or %42, %48 : (tensor<2x2x2xi32>, tensor<2x2x2xi32>) -> tensor<2x2x2xi32>
    %50 = graphcore.slice %10 {starts = [0, 6, 0], sizes = [2, 2, 2], steps = [1, 8, 1]} : (tensor<2x16x2xui8>) -> tensor<2x2x2xui8>
    %51 = graphcore.cast %50 {to = i32} : (tensor<2x2x2xui8>) -> tensor<2x2x2xi32>
    %52 = pg.constant #pg.data<"0f000000" : tensor<i32>>
    %53 = graphcore.and %51, %52 : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %54 = pg.constant #pg.data<"18000000" : tensor<i32>>
    %55 = graphcore.shift %53, %54 {direction = "left"} : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %56 = graphcore.or %49, %55 : (tensor<2x2x2xi32>, tensor<2x2x2xi32>) -> tensor<2x2x2xi32>
    %57 = graphcore.slice %10 {starts = [0, 7, 0], sizes = [2, 2, 2], steps = [1, 8, 1]} : (tensor<2x16x2xui8>) -> tensor<2x2x2xui8>
    %58 = graphcore.cast %57 {to = i32} : (tensor<2x2x2xui8>) -> tensor<2x2x2xi32>
    %59 = pg.constant #pg.data<"1c000000" : tensor<i32>>
    %60 = graphcore.shift %58, %59 {direction = "left"} : (tensor<2x2x2xi32>, tensor<i32>) -> tensor<2x2x2xi32>
    %61 = graphcore.or %56, %60 : (tensor<2x2x2xi32>, tensor<2x2x2xi32>) -> tensor<2x2x2xi32>
    %62 = graphcore.parts %61 {axis = 1, count = 8, bits = 4, mask = 15} : (tensor<2x2x2xi32>) -> tensor<2x16x2xi32>
    %63 = graphcore.cast %62 {to = f32} : (tensor<2x16x2xi32>) -> tensor<2x16x2xf32>
    %64 = pg.constant #pg.data<"00000000" : tensor<f32>>
    %65 = graphcore.add %63, %64 : (tensor<2x16x2xf32>, tensor<f32>) -> tensor<2x16x2xf32>
    %66 = graphcore.mat_mul %2, %65 : (tensor<2x2x16xf32>, tensor<2x16x2xf32>) -> tensor<2x2x2xf32>
    %67 = pg.constant #pg.data<"0000803f0000003f000000400000803e" : tensor<2x1x2xf32>>
    %68 = graphcore.mul %66, %67 : (tensor<2x2x2xf32>, tensor<2x1x2xf32>) -> tensor<2x2x2xf32>
    %69 = graphcore.reduce_sum %2 {axes = [2], keepdims = true} : (tensor<2x2x16xf32>) -> tensor<2x2x1xf32>
    %70 = pg.constant #pg.data<"000000400000803f000080400000003f" : tensor<2x1x2xf32>>
    %71 = graphcore.mul %69, %70 : (tensor<2x2x1xf32>, tensor<2x1x2xf32>) -> tensor<2x2x2xf32>
    %72 = graphcore.sub %68, %71 : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x2xf32>
    %73 = graphcore.reduce_sum %72 {axes = [0], keepdims = false} : (tensor<2x2x2xf32>) -> tensor<2x2xf32>
    %y = graphcore.reshape %73 {shape = [2, 2]} : (tensor<2x2xf32>) -> tensor<2x2xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<2x2xf32>
  }
}
