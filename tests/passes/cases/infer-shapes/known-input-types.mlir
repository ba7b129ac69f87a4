// Every value gets the type that its operands imply.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>) outputs ("v1" : tensor<?x?xf32>) {
    ^bb0(%x0: tensor<2x3xf32>):
      %v0 = onnx.Relu.v14(%x0) -> ["v0"] named "n0" : tensor<*xf32>
      %v1 = onnx.Transpose.v13(%v0) {perm = [1, 0]} -> ["v1"] named "n1" : tensor<?x?xf32>
      onnx.Yield %v1 : tensor<?x?xf32>
    }
  }
}
// -----
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>) outputs ("v1" : tensor<3x2xf32>) {
    ^bb0(%x0: tensor<2x3xf32>):
      %v0 = onnx.Relu.v14(%x0) -> ["v0"] named "n0" : tensor<2x3xf32>
      %v1 = onnx.Transpose.v13(%v0) {perm = [1, 0]} -> ["v1"] named "n1" : tensor<3x2xf32>
      onnx.Yield %v1 : tensor<3x2xf32>
    }
  }
}
