// A Compress with a condition from an input stays: the size of its result varies at run time.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>, "c0" : tensor<3xi1>) outputs ("v0" : tensor<2x?xf32>) {
    ^bb0(%x0: tensor<2x3xf32>, %c0: tensor<3xi1>):
      %v0 = onnx.Compress.v11(%x0, %c0) {axis = 1} -> ["v0"] named "n0" : tensor<2x?xf32>
      onnx.Yield %v0 : tensor<2x?xf32>
    }
  }
}
// -----
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>, "c0" : tensor<3xi1>) outputs ("v0" : tensor<2x?xf32>) {
    ^bb0(%x0: tensor<2x3xf32>, %c0: tensor<3xi1>):
      %v0 = onnx.Compress.v11(%x0, %c0) {axis = 1} -> ["v0"] named "n0" : tensor<2x?xf32>
      onnx.Yield %v0 : tensor<2x?xf32>
    }
  }
}
