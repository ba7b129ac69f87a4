// Replaces a branch by the body that is always taken, or by either if both are equal.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"g">] {
  ^bb0(%x: tensor<3xf32>, %g: tensor<i1>):
    %t = pg.constant #pg.data<"01" : tensor<i1>>
    %a = graphcore.cond %t captured (%x) : (tensor<i1>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb1(%p: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    } else {
    ^bb1(%p: tensor<3xf32>):
      pg.yield %p : tensor<3xf32>
    }
    %u = pg.constant #pg.data<"00" : tensor<i1>>
    %c = graphcore.cond %u captured (%x) : (tensor<i1>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb1(%p: tensor<3xf32>):
      %s = graphcore.exp %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    } else {
    ^bb1(%p: tensor<3xf32>):
      pg.yield %p : tensor<3xf32>
    }
    %d = graphcore.cond %g captured (%x) : (tensor<i1>, tensor<3xf32>) -> tensor<3xf32> {
    ^bb1(%p: tensor<3xf32>):
      %s = graphcore.tanh %p : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    } else {
    ^bb1(%q: tensor<3xf32>):
      %s = graphcore.tanh %q : (tensor<3xf32>) -> tensor<3xf32>
      pg.yield %s : tensor<3xf32>
    }
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">], %a, %c, %d : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"g">] {
  ^bb0(%x: tensor<3xf32>, %g: tensor<i1>):
    %s = graphcore.exp %x : (tensor<3xf32>) -> tensor<3xf32>
    %s_1 = graphcore.tanh %x : (tensor<3xf32>) -> tensor<3xf32>
    pg.return [#pg.bytes<"y0">, #pg.bytes<"y1">, #pg.bytes<"y2">], %s, %x, %s_1 : tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  }
}
