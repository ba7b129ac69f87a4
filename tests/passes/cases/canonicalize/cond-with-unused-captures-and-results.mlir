// Drops captured values that neither body uses and results that nobody reads, merges equal arguments,
// and moves literals into the bodies.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">, #pg.bytes<"g">] {
  ^bb0(%x: tensor<3xf32>, %y: tensor<3xf32>, %g: tensor<i1>):
    %c = pg.constant #pg.data<seed 1 : tensor<3xf32>>
    %a, %b = graphcore.cond %g captured (%x, %y, %x, %c) : (tensor<i1>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
    ^bb1(%p: tensor<3xf32>, %q: tensor<3xf32>, %r: tensor<3xf32>, %k: tensor<3xf32>):
      %s = graphcore.mul %p, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %t = graphcore.exp %q : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %t : tensor<3xf32>, tensor<3xf32>
    } else {
    ^bb1(%p: tensor<3xf32>, %q: tensor<3xf32>, %r: tensor<3xf32>, %k: tensor<3xf32>):
      %s = graphcore.exp %r : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s, %q : tensor<3xf32>, tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">, #pg.bytes<"g">] {
  ^bb0(%x: tensor<3xf32>, %y: tensor<3xf32>, %g: tensor<i1>):
    %a = graphcore.cond %g captured (%x) : (tensor<i1>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb0(%p: tensor<3xf32>):
      %k = pg.constant #pg.data<seed 1 : tensor<3xf32>>
      %s = graphcore.mul %p, %k : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    } else {
    ^bb0(%p_1: tensor<3xf32>):
      %s_1 = graphcore.exp %p_1 : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s_1 : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">], %a : tensor<3xf32>
  }
}
