// Gemm with a transposed weight: transpose, matmul, add.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>) outputs ("v0" : tensor<2x4xf32>) {
    ^bb0(%x0: tensor<2x3xf32>):
      %c0 = onnx.Initializer "c0_1" #onnx.tensor<#pg.data<"00000000000000000000003f0000803f000080bf000040bf0000403f0000803f000000bf000000bf0000403f000080be" : tensor<4x3xf32>>>
      %c0_1 = onnx.Initializer "c0_2" #onnx.tensor<#pg.data<"00000000000000000000003f0000803f" : tensor<4xf32>>>
      %v0 = onnx.Gemm.v13(%x0, %c0, %c0_1) {transB = 1} -> ["v0"] named "n0" : tensor<2x4xf32>
      onnx.Yield %v0 : tensor<2x4xf32>
    }
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%x0: tensor<2x3xf32>):
    %c0 = pg.constant #pg.data<"00000000000000000000003f0000803f" : tensor<4xf32>>
    %0 = pg.constant #pg.data<"000000000000803f0000403f000000bf00000000000080bf0000803f0000403f0000003f000040bf000000bf000080be" : tensor<3x4xf32>>
    %1 = graphcore.mat_mul %x0, %0 : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %v0 = graphcore.add %1, %c0 : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
    pg.return [#pg.bytes<"v0">], %v0 : tensor<2x4xf32>
  }
}
