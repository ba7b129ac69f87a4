// This stays: indices are checked only if an iteration uses them.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"limit">, #pg.bytes<"t">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<2xi64>, %limit: tensor<i64>, %t: tensor<3xf32>):
    %a = graphcore.loop trips 4 limit %limit carried (%h) captured (%x, %t) : (tensor<i64>, tensor<3xf32>, tensor<2xi64>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb1(%i: tensor<i64>, %p: tensor<3xf32>, %k: tensor<2xi64>, %l: tensor<3xf32>):
      %c = graphcore.check_indices %k {low = [0], last = [2], what = #pg.bytes<"index">, place = #pg.bytes<"">} : (tensor<2xi64>) -> tensor<2xi64>
      %g = graphcore.gather %l, %c {axis = 0} : (tensor<3xf32>, tensor<2xi64>) -> tensor<2xf32>
      %r = graphcore.reduce_sum %g {axes = [0], keepdims = true} : (tensor<2xf32>) -> tensor<1xf32>
      %s = graphcore.mul %p, %r : (tensor<3xf32>, tensor<1xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"h">, #pg.bytes<"x">, #pg.bytes<"limit">, #pg.bytes<"t">] {
  ^bb0(%h: tensor<3xf32>, %x: tensor<2xi64>, %limit: tensor<i64>, %t: tensor<3xf32>):
    %a = graphcore.loop trips 4 limit %limit carried (%h) captured (%x, %t) : (tensor<i64>, tensor<3xf32>, tensor<2xi64>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%i: tensor<i64>, %p: tensor<3xf32>, %k: tensor<2xi64>, %l: tensor<3xf32>):
      %c = graphcore.check_indices %k {low = [0], last = [2], what = #pg.bytes<"index">, place = #pg.bytes<"">} : (tensor<2xi64>) -> tensor<2xi64>
      %g = graphcore.gather %l, %c {axis = 0} : (tensor<3xf32>, tensor<2xi64>) -> tensor<2xf32>
      %r = graphcore.reduce_sum %g {axes = [0], keepdims = true} : (tensor<2xf32>) -> tensor<1xf32>
      %s = graphcore.mul %p, %r : (tensor<3xf32>, tensor<1xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
