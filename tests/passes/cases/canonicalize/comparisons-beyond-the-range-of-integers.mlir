// No u8 is less than 0 or greater than 255; a clamp to the whole range of a type is dropped.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xui8>):
    %1 = pg.constant #pg.data<"00" : tensor<ui8>>
    %2 = pg.constant #pg.data<"ff" : tensor<ui8>>
    %3 = graphcore.compare %0, %1 {predicate = "lt"} : (tensor<3xui8>, tensor<ui8>) -> tensor<3xi1>
    %4 = graphcore.compare %2, %0 {predicate = "ge"} : (tensor<ui8>, tensor<3xui8>) -> tensor<3xi1>
    %5 = graphcore.compare %0, %2 {predicate = "lt"} : (tensor<3xui8>, tensor<ui8>) -> tensor<3xi1>
    %6 = graphcore.max %0, %1 : (tensor<3xui8>, tensor<ui8>) -> tensor<3xui8>
    %7 = graphcore.min %2, %6 : (tensor<ui8>, tensor<3xui8>) -> tensor<3xui8>
    %8 = graphcore.not %7 : (tensor<3xui8>) -> tensor<3xui8>
    %9 = graphcore.min %0, %1 : (tensor<3xui8>, tensor<ui8>) -> tensor<3xui8>
    pg.return [#pg.bytes<"v1">, #pg.bytes<"v2">, #pg.bytes<"v3">, #pg.bytes<"v4">, #pg.bytes<"v5">], %3, %4, %5, %8, %9 : tensor<3xi1>, tensor<3xi1>, tensor<3xi1>, tensor<3xui8>, tensor<3xui8>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%0: tensor<3xui8>):
    %1 = pg.constant #pg.data<"00" : tensor<ui8>>
    %2 = pg.constant #pg.data<"ff" : tensor<ui8>>
    %3 = pg.constant #pg.data<"00" : tensor<i1>>
    %4 = graphcore.broadcast %3 {shape = [3]} : (tensor<i1>) -> tensor<3xi1>
    %5 = pg.constant #pg.data<"01" : tensor<i1>>
    %6 = graphcore.broadcast %5 {shape = [3]} : (tensor<i1>) -> tensor<3xi1>
    %7 = graphcore.compare %0, %2 {predicate = "lt"} : (tensor<3xui8>, tensor<ui8>) -> tensor<3xi1>
    %8 = graphcore.not %0 : (tensor<3xui8>) -> tensor<3xui8>
    %9 = graphcore.broadcast %1 {shape = [3]} : (tensor<ui8>) -> tensor<3xui8>
    pg.return [#pg.bytes<"v1">, #pg.bytes<"v2">, #pg.bytes<"v3">, #pg.bytes<"v4">, #pg.bytes<"v5">], %4, %6, %7, %8, %9 : tensor<3xi1>, tensor<3xi1>, tensor<3xi1>, tensor<3xui8>, tensor<3xui8>
  }
}
