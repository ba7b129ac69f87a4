// A matmul by keys or values appended to an input is split into one for each part, also if a head has several
// queries. Matmuls of f16 along rows, and concatenations without an input, are not split.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"q">, #pg.bytes<"p">, #pg.bytes<"k">, #pg.bytes<"v">, #pg.bytes<"h">, #pg.bytes<"g">, #pg.bytes<"ng">] {
  ^bb0(%q: tensor<1x4x1x8xf32>, %p: tensor<1x4x1x7xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x8xf32>, %h: tensor<1x7xf16>, %g: tensor<6x3xf16>, %ng: tensor<1x3xf16>):
    %nk = pg.constant #pg.data<seed 1 : tensor<1x2x1x8xf32>>
    %nv = pg.constant #pg.data<seed 2 : tensor<1x2x1x8xf32>>
    %ak = graphcore.concat %k, %nk {axis = 2} : (tensor<1x2x6x8xf32>, tensor<1x2x1x8xf32>) -> tensor<1x2x7x8xf32>
    %rk = graphcore.reshape %ak {shape = [1, 2, 1, 7, 8]} : (tensor<1x2x7x8xf32>) -> tensor<1x2x1x7x8xf32>
    %bk = graphcore.broadcast %rk {shape = [1, 2, 2, 7, 8]} : (tensor<1x2x1x7x8xf32>) -> tensor<1x2x2x7x8xf32>
    %hk = graphcore.reshape %bk {shape = [1, 4, 7, 8]} : (tensor<1x2x2x7x8xf32>) -> tensor<1x4x7x8xf32>
    %tk = graphcore.transpose %hk {perm = [0, 1, 3, 2]} : (tensor<1x4x7x8xf32>) -> tensor<1x4x8x7xf32>
    %s = graphcore.mat_mul %q, %tk : (tensor<1x4x1x8xf32>, tensor<1x4x8x7xf32>) -> tensor<1x4x1x7xf32>
    %av = graphcore.concat %v, %nv {axis = 2} : (tensor<1x2x6x8xf32>, tensor<1x2x1x8xf32>) -> tensor<1x2x7x8xf32>
    %rv = graphcore.reshape %av {shape = [1, 2, 1, 7, 8]} : (tensor<1x2x7x8xf32>) -> tensor<1x2x1x7x8xf32>
    %bv = graphcore.broadcast %rv {shape = [1, 2, 2, 7, 8]} : (tensor<1x2x1x7x8xf32>) -> tensor<1x2x2x7x8xf32>
    %hv = graphcore.reshape %bv {shape = [1, 4, 7, 8]} : (tensor<1x2x2x7x8xf32>) -> tensor<1x4x7x8xf32>
    %r = graphcore.mat_mul %p, %hv : (tensor<1x4x1x7xf32>, tensor<1x4x7x8xf32>) -> tensor<1x4x1x8xf32>
    %ag = graphcore.concat %g, %ng {axis = 0} : (tensor<6x3xf16>, tensor<1x3xf16>) -> tensor<7x3xf16>
    %y = graphcore.mat_mul %h, %ag : (tensor<1x7xf16>, tensor<7x3xf16>) -> tensor<1x3xf16>
    %m = graphcore.neg %v : (tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
    %am = graphcore.concat %m, %nv {axis = 2} : (tensor<1x2x6x8xf32>, tensor<1x2x1x8xf32>) -> tensor<1x2x7x8xf32>
    %ps = graphcore.slice %p {starts = [0, 0, 0, 0], sizes = [1, 2, 1, 7], steps = [1, 1, 1, 1]} : (tensor<1x4x1x7xf32>) -> tensor<1x2x1x7xf32>
    %z = graphcore.mat_mul %ps, %am : (tensor<1x2x1x7xf32>, tensor<1x2x7x8xf32>) -> tensor<1x2x1x8xf32>
    pg.return [#pg.bytes<"s">, #pg.bytes<"r">, #pg.bytes<"y">, #pg.bytes<"ak">, #pg.bytes<"z">], %s, %r, %y, %ak,
        %z : tensor<1x4x1x7xf32>, tensor<1x4x1x8xf32>, tensor<1x3xf16>, tensor<1x2x7x8xf32>, tensor<1x2x1x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"q">, #pg.bytes<"p">, #pg.bytes<"k">, #pg.bytes<"v">, #pg.bytes<"h">, #pg.bytes<"g">, #pg.bytes<"ng">] {
  ^bb0(%q: tensor<1x4x1x8xf32>, %p: tensor<1x4x1x7xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x8xf32>, %h: tensor<1x7xf16>, %g: tensor<6x3xf16>, %ng: tensor<1x3xf16>):
    %nk = pg.constant #pg.data<seed 1 : tensor<1x2x1x8xf32>>
    %nv = pg.constant #pg.data<seed 2 : tensor<1x2x1x8xf32>>
    %ak = graphcore.concat %k, %nk {axis = 2} : (tensor<1x2x6x8xf32>, tensor<1x2x1x8xf32>) -> tensor<1x2x7x8xf32>
    %0 = graphcore.reshape %k {shape = [1, 2, 1, 6, 8]} : (tensor<1x2x6x8xf32>) -> tensor<1x2x1x6x8xf32>
    %1 = graphcore.broadcast %0 {shape = [1, 2, 2, 6, 8]} : (tensor<1x2x1x6x8xf32>) -> tensor<1x2x2x6x8xf32>
    %2 = graphcore.reshape %1 {shape = [1, 4, 6, 8]} : (tensor<1x2x2x6x8xf32>) -> tensor<1x4x6x8xf32>
    %3 = graphcore.transpose %2 {perm = [0, 1, 3, 2]} : (tensor<1x4x6x8xf32>) -> tensor<1x4x8x6xf32>
    %4 = graphcore.reshape %nk {shape = [1, 2, 1, 1, 8]} : (tensor<1x2x1x8xf32>) -> tensor<1x2x1x1x8xf32>
    %5 = graphcore.broadcast %4 {shape = [1, 2, 2, 1, 8]} : (tensor<1x2x1x1x8xf32>) -> tensor<1x2x2x1x8xf32>
    %6 = graphcore.reshape %5 {shape = [1, 4, 8, 1]} : (tensor<1x2x2x1x8xf32>) -> tensor<1x4x8x1xf32>
    %7 = graphcore.mat_mul %q, %3 : (tensor<1x4x1x8xf32>, tensor<1x4x8x6xf32>) -> tensor<1x4x1x6xf32>
    %8 = graphcore.mat_mul %q, %6 : (tensor<1x4x1x8xf32>, tensor<1x4x8x1xf32>) -> tensor<1x4x1x1xf32>
    %s = graphcore.concat %7, %8 {axis = 3} : (tensor<1x4x1x6xf32>, tensor<1x4x1x1xf32>) -> tensor<1x4x1x7xf32>
    %9 = graphcore.reshape %v {shape = [1, 2, 1, 6, 8]} : (tensor<1x2x6x8xf32>) -> tensor<1x2x1x6x8xf32>
    %10 = graphcore.broadcast %9 {shape = [1, 2, 2, 6, 8]} : (tensor<1x2x1x6x8xf32>) -> tensor<1x2x2x6x8xf32>
    %11 = graphcore.reshape %10 {shape = [1, 4, 6, 8]} : (tensor<1x2x2x6x8xf32>) -> tensor<1x4x6x8xf32>
    %12 = graphcore.reshape %nv {shape = [1, 2, 1, 1, 8]} : (tensor<1x2x1x8xf32>) -> tensor<1x2x1x1x8xf32>
    %13 = graphcore.broadcast %12 {shape = [1, 2, 2, 1, 8]} : (tensor<1x2x1x1x8xf32>) -> tensor<1x2x2x1x8xf32>
    %14 = graphcore.reshape %13 {shape = [1, 4, 1, 8]} : (tensor<1x2x2x1x8xf32>) -> tensor<1x4x1x8xf32>
    %15 = graphcore.slice %p {starts = [0, 0, 0, 0], sizes = [1, 4, 1, 6], steps = [1, 1, 1, 1]} : (tensor<1x4x1x7xf32>) -> tensor<1x4x1x6xf32>
    %16 = graphcore.mat_mul %15, %11 : (tensor<1x4x1x6xf32>, tensor<1x4x6x8xf32>) -> tensor<1x4x1x8xf32>
    %17 = graphcore.slice %p {starts = [0, 0, 0, 6], sizes = [1, 4, 1, 1], steps = [1, 1, 1, 1]} : (tensor<1x4x1x7xf32>) -> tensor<1x4x1x1xf32>
    %18 = graphcore.mat_mul %17, %14 : (tensor<1x4x1x1xf32>, tensor<1x4x1x8xf32>) -> tensor<1x4x1x8xf32>
    %r = graphcore.add %16, %18 : (tensor<1x4x1x8xf32>, tensor<1x4x1x8xf32>) -> tensor<1x4x1x8xf32>
    %ag = graphcore.concat %g, %ng {axis = 0} : (tensor<6x3xf16>, tensor<1x3xf16>) -> tensor<7x3xf16>
    %y = graphcore.mat_mul %h, %ag : (tensor<1x7xf16>, tensor<7x3xf16>) -> tensor<1x3xf16>
    %m = graphcore.neg %v : (tensor<1x2x6x8xf32>) -> tensor<1x2x6x8xf32>
    %am = graphcore.concat %m, %nv {axis = 2} : (tensor<1x2x6x8xf32>, tensor<1x2x1x8xf32>) -> tensor<1x2x7x8xf32>
    %ps = graphcore.slice %p {starts = [0, 0, 0, 0], sizes = [1, 2, 1, 7], steps = [1, 1, 1, 1]} : (tensor<1x4x1x7xf32>) -> tensor<1x2x1x7xf32>
    %z = graphcore.mat_mul %ps, %am : (tensor<1x2x1x7xf32>, tensor<1x2x7x8xf32>) -> tensor<1x2x1x8xf32>
    pg.return [#pg.bytes<"s">, #pg.bytes<"r">, #pg.bytes<"y">, #pg.bytes<"ak">, #pg.bytes<"z">], %s, %r, %y, %ak,
        %z : tensor<1x4x1x7xf32>, tensor<1x4x1x8xf32>, tensor<1x3xf16>, tensor<1x2x7x8xf32>, tensor<1x2x1x8xf32>
  }
}
