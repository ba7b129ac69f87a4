// Rows of a bf16 table, and of a table in blocks, are looked up before they become floats; a table of f32 is not narrower.
builtin.module {
  pg.graph @main inputs [#pg.bytes<"i">] {
  ^bb0(%i: tensor<2xi64>):
    %t = pg.constant #pg.data<"003f05400a410f3f144019411e3f234028412d3f324037413c3f414046414b3f504055415a3f5f406441693f6e407341" : tensor<6x4xbf16>>
    %0 = graphcore.cast %t {to = f32} : (tensor<6x4xbf16>) -> tensor<6x4xf32>
    %y = graphcore.gather %0, %i {axis = 0} : (tensor<6x4xf32>, tensor<2xi64>) -> tensor<2x4xf32>
    %q = pg.constant #pg.data<"00254a6f94b9de03284d7297bce1062b50759abfe4092e53789dc2e70c31567ba0c5ea0f34597ea3c8ed12375c81a6cb" : tensor<6x2x4xi8>>
    %s = pg.constant #pg.data<seed 3 : tensor<6x2x1xf32>>
    %m = pg.constant #pg.data<seed 4 : tensor<6x2x1xf32>>
    %1 = graphcore.cast %q {to = f32} : (tensor<6x2x4xi8>) -> tensor<6x2x4xf32>
    %2 = graphcore.mul %1, %s : (tensor<6x2x4xf32>, tensor<6x2x1xf32>) -> tensor<6x2x4xf32>
    %3 = graphcore.sub %2, %m : (tensor<6x2x4xf32>, tensor<6x2x1xf32>) -> tensor<6x2x4xf32>
    %4 = graphcore.reshape %3 {shape = [6, 8]} : (tensor<6x2x4xf32>) -> tensor<6x8xf32>
    %z = graphcore.gather %4, %i {axis = 0} : (tensor<6x8xf32>, tensor<2xi64>) -> tensor<2x8xf32>
    %f = pg.constant #pg.data<seed 5 : tensor<6x8xf32>>
    %5 = graphcore.exp %f : (tensor<6x8xf32>) -> tensor<6x8xf32>
    %w = graphcore.gather %5, %i {axis = 0} : (tensor<6x8xf32>, tensor<2xi64>) -> tensor<2x8xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">, #pg.bytes<"w">], %y, %z, %w : tensor<2x4xf32>, tensor<2x8xf32>, tensor<2x8xf32>
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"i">] {
  ^bb0(%i: tensor<2xi64>):
    %t = pg.constant #pg.data<"003f05400a410f3f144019411e3f234028412d3f324037413c3f414046414b3f504055415a3f5f406441693f6e407341" : tensor<6x4xbf16>>
    %0 = graphcore.gather %t, %i {axis = 0} : (tensor<6x4xbf16>, tensor<2xi64>) -> tensor<2x4xbf16>
    %y = graphcore.cast %0 {to = f32} : (tensor<2x4xbf16>) -> tensor<2x4xf32>
    %q = pg.constant #pg.data<"00254a6f94b9de03284d7297bce1062b50759abfe4092e53789dc2e70c31567ba0c5ea0f34597ea3c8ed12375c81a6cb" : tensor<6x2x4xi8>>
    %s = pg.constant #pg.data<seed 3 : tensor<6x2x1xf32>>
    %m = pg.constant #pg.data<seed 4 : tensor<6x2x1xf32>>
    %1 = graphcore.gather %q, %i {axis = 0} : (tensor<6x2x4xi8>, tensor<2xi64>) -> tensor<2x2x4xi8>
    %2 = graphcore.cast %1 {to = f32} : (tensor<2x2x4xi8>) -> tensor<2x2x4xf32>
    %3 = graphcore.gather %s, %i {axis = 0} : (tensor<6x2x1xf32>, tensor<2xi64>) -> tensor<2x2x1xf32>
    %4 = graphcore.mul %2, %3 : (tensor<2x2x4xf32>, tensor<2x2x1xf32>) -> tensor<2x2x4xf32>
    %5 = graphcore.gather %m, %i {axis = 0} : (tensor<6x2x1xf32>, tensor<2xi64>) -> tensor<2x2x1xf32>
    %6 = graphcore.sub %4, %5 : (tensor<2x2x4xf32>, tensor<2x2x1xf32>) -> tensor<2x2x4xf32>
    %z = graphcore.reshape %6 {shape = [2, 8]} : (tensor<2x2x4xf32>) -> tensor<2x8xf32>
    %f = pg.constant #pg.data<seed 5 : tensor<6x8xf32>>
    %7 = graphcore.exp %f : (tensor<6x8xf32>) -> tensor<6x8xf32>
    %w = graphcore.gather %7, %i {axis = 0} : (tensor<6x8xf32>, tensor<2xi64>) -> tensor<2x8xf32>
    pg.return [#pg.bytes<"y">, #pg.bytes<"z">, #pg.bytes<"w">], %y, %z, %w : tensor<2x4xf32>, tensor<2x8xf32>, tensor<2x8xf32>
  }
}
