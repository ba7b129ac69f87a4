// `arith` has no unsigned types: values are signless in the body, and unsigned again in the result.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%a: tensor<3xui8>, %b: tensor<3xui8>):
    %y = graphcore.max %a, %b : (tensor<3xui8>, tensor<3xui8>) -> tensor<3xui8>
    pg.return [#pg.bytes<"y">], %y : tensor<3xui8>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"a">, #pg.bytes<"b">] {
  ^bb0(%a: tensor<3xui8>, %b: tensor<3xui8>):
    %y = tile.map ins(%a, %b : tensor<3xui8>, tensor<3xui8>) domain [3] maps [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] {
    ^bb0(%0: ui8, %1: ui8):
      %2 = arith.bitcast %0 : ui8 to i8
      %3 = arith.bitcast %1 : ui8 to i8
      %4 = arith.maxui %2, %3 : i8
      %5 = arith.bitcast %4 : i8 to ui8
      tile.yield %5 : ui8
    } -> tensor<3xui8>
    pg.return [#pg.bytes<"y">], %y : tensor<3xui8>
  }
}
