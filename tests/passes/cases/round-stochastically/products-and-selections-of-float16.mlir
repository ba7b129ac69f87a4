// A product of f16 is computed in f32 and rounded at random; operations that only select f16 values, and f32, are not
// changed.
// -p round-stochastically
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%x: tensor<2xf16>, %y: tensor<2xf32>):
    %0 = graphcore.mul %x, %x : (tensor<2xf16>, tensor<2xf16>) -> tensor<2xf16>
    %1 = graphcore.relu %0 : (tensor<2xf16>) -> tensor<2xf16>
    %2 = graphcore.mul %y, %y : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.cast %2 {to = f16} : (tensor<2xf32>) -> tensor<2xf16>
    pg.return [#pg.bytes<"a">, #pg.bytes<"b">], %1, %3 : tensor<2xf16>, tensor<2xf16>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"y">] {
  ^bb0(%x: tensor<2xf16>, %y: tensor<2xf32>):
    %0 = pg.variable #pg.bytes<"randomSeed___fromHost"> = #pg.data<"00000000000000000000000000000000" : tensor<2xi64>>
    %1 = graphcore.cast %x {to = f32} : (tensor<2xf16>) -> tensor<2xf32>
    %2 = graphcore.mul %1, %1 : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %3 = graphcore.round_stochastically %2, %0 {stream = 72057594037927936} : (tensor<2xf32>, tensor<2xi64>) -> tensor<2xf16>
    %4 = graphcore.relu %3 : (tensor<2xf16>) -> tensor<2xf16>
    %5 = graphcore.mul %y, %y : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %6 = graphcore.round_stochastically %5, %0 {stream = 72057594037927937} : (tensor<2xf32>, tensor<2xi64>) -> tensor<2xf16>
    %7 = pg.constant #pg.data<"00000000000000000100000000000000" : tensor<2xi64>>
    %8 = graphcore.add %0, %7 : (tensor<2xi64>, tensor<2xi64>) -> tensor<2xi64>
    pg.update <"randomSeed___fromHost">, %8 : tensor<2xi64>
    pg.return [#pg.bytes<"a">, #pg.bytes<"b">], %4, %6 : tensor<2xf16>, tensor<2xf16>
  }
}
