// A scale of keys moves to the query and is merged with its scale; a scale of both long factors moves to
// their product. Large scales, f16 scales and scales of products with other readers stay.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"q">, #pg.bytes<"k">, #pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"h">, #pg.bytes<"g">] {
  ^bb0(%q: tensor<2x1x4xf32>, %k: tensor<2x8x4xf32>, %a: tensor<2x9xf32>, %b: tensor<9x2xf32>, %h: tensor<1x4xf16>, %g: tensor<4x8xf16>):
    %s = pg.constant #pg.data<"0000003f" : tensor<1xf32>>
    %t = graphcore.transpose %k {perm = [0, 2, 1]} : (tensor<2x8x4xf32>) -> tensor<2x4x8xf32>
    %qs = graphcore.mul %q, %s : (tensor<2x1x4xf32>, tensor<1xf32>) -> tensor<2x1x4xf32>
    %ts = graphcore.mul %t, %s : (tensor<2x4x8xf32>, tensor<1xf32>) -> tensor<2x4x8xf32>
    %y = graphcore.mat_mul %qs, %ts : (tensor<2x1x4xf32>, tensor<2x4x8xf32>) -> tensor<2x1x8xf32>
    %ks = graphcore.mul %k, %s : (tensor<2x8x4xf32>, tensor<1xf32>) -> tensor<2x8x4xf32>
    %kt = graphcore.transpose %ks {perm = [0, 2, 1]} : (tensor<2x8x4xf32>) -> tensor<2x4x8xf32>
    %yy = graphcore.mat_mul %q, %kt : (tensor<2x1x4xf32>, tensor<2x4x8xf32>) -> tensor<2x1x8xf32>
    %as = graphcore.mul %a, %s : (tensor<2x9xf32>, tensor<1xf32>) -> tensor<2x9xf32>
    %z = graphcore.mat_mul %as, %b : (tensor<2x9xf32>, tensor<9x2xf32>) -> tensor<2x2xf32>
    %l = pg.constant #pg.data<"0000004c" : tensor<f32>>
    %al = graphcore.mul %a, %l : (tensor<2x9xf32>, tensor<f32>) -> tensor<2x9xf32>
    %zl = graphcore.mat_mul %al, %b : (tensor<2x9xf32>, tensor<9x2xf32>) -> tensor<2x2xf32>
    %n = graphcore.mul %b, %s : (tensor<9x2xf32>, tensor<1xf32>) -> tensor<9x2xf32>
    %zn = graphcore.mat_mul %a, %n : (tensor<2x9xf32>, tensor<9x2xf32>) -> tensor<2x2xf32>
    %c = pg.constant #pg.data<"0038" : tensor<f16>>
    %gs = graphcore.mul %g, %c : (tensor<4x8xf16>, tensor<f16>) -> tensor<4x8xf16>
    %hg = graphcore.mat_mul %h, %gs : (tensor<1x4xf16>, tensor<4x8xf16>) -> tensor<1x8xf16>
    pg.return [#pg.bytes<"y">, #pg.bytes<"yy">, #pg.bytes<"z">, #pg.bytes<"zl">, #pg.bytes<"n">, #pg.bytes<"zn">, #pg.bytes<"hg">],
        %y, %yy, %z, %zl, %n, %zn, %hg : tensor<2x1x8xf32>, tensor<2x1x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>,
        tensor<9x2xf32>, tensor<2x2xf32>, tensor<1x8xf16>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"q">, #pg.bytes<"k">, #pg.bytes<"a">, #pg.bytes<"b">, #pg.bytes<"h">, #pg.bytes<"g">] {
  ^bb0(%q: tensor<2x1x4xf32>, %k: tensor<2x8x4xf32>, %a: tensor<2x9xf32>, %b: tensor<9x2xf32>, %h: tensor<1x4xf16>, %g: tensor<4x8xf16>):
    %s = pg.constant #pg.data<"0000003f" : tensor<1xf32>>
    %t = graphcore.transpose %k {perm = [0, 2, 1]} : (tensor<2x8x4xf32>) -> tensor<2x4x8xf32>
    %0 = pg.constant #pg.data<"0000803e" : tensor<f32>>
    %1 = graphcore.mul %q, %0 : (tensor<2x1x4xf32>, tensor<f32>) -> tensor<2x1x4xf32>
    %y = graphcore.mat_mul %1, %t : (tensor<2x1x4xf32>, tensor<2x4x8xf32>) -> tensor<2x1x8xf32>
    %2 = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %3 = graphcore.mul %q, %2 : (tensor<2x1x4xf32>, tensor<f32>) -> tensor<2x1x4xf32>
    %4 = graphcore.transpose %k {perm = [0, 2, 1]} : (tensor<2x8x4xf32>) -> tensor<2x4x8xf32>
    %yy = graphcore.mat_mul %3, %4 : (tensor<2x1x4xf32>, tensor<2x4x8xf32>) -> tensor<2x1x8xf32>
    %5 = graphcore.mat_mul %a, %b : (tensor<2x9xf32>, tensor<9x2xf32>) -> tensor<2x2xf32>
    %6 = pg.constant #pg.data<"0000003f" : tensor<f32>>
    %z = graphcore.mul %5, %6 : (tensor<2x2xf32>, tensor<f32>) -> tensor<2x2xf32>
    %l = pg.constant #pg.data<"0000004c" : tensor<f32>>
    %al = graphcore.mul %a, %l : (tensor<2x9xf32>, tensor<f32>) -> tensor<2x9xf32>
    %zl = graphcore.mat_mul %al, %b : (tensor<2x9xf32>, tensor<9x2xf32>) -> tensor<2x2xf32>
    %n = graphcore.mul %b, %s : (tensor<9x2xf32>, tensor<1xf32>) -> tensor<9x2xf32>
    %zn = graphcore.mat_mul %a, %n : (tensor<2x9xf32>, tensor<9x2xf32>) -> tensor<2x2xf32>
    %c = pg.constant #pg.data<"0038" : tensor<f16>>
    %gs = graphcore.mul %g, %c : (tensor<4x8xf16>, tensor<f16>) -> tensor<4x8xf16>
    %hg = graphcore.mat_mul %h, %gs : (tensor<1x4xf16>, tensor<4x8xf16>) -> tensor<1x8xf16>
    pg.return [#pg.bytes<"y">, #pg.bytes<"yy">, #pg.bytes<"z">, #pg.bytes<"zl">, #pg.bytes<"n">, #pg.bytes<"zn">, #pg.bytes<"hg">],
        %y, %yy, %z, %zl, %n, %zn, %hg : tensor<2x1x8xf32>, tensor<2x1x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>,
        tensor<9x2xf32>, tensor<2x2xf32>, tensor<1x8xf16>
  }
}
