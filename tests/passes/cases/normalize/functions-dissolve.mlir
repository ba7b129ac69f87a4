// Softplus is defined by ONNX itself: exp, add, log.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<3xf32>) outputs ("v0" : tensor<3xf32>) {
    ^bb0(%x0: tensor<3xf32>):
      %v0 = onnx.Softplus.v1(%x0) -> ["v0"] named "n0" : tensor<3xf32>
      onnx.Yield %v0 : tensor<3xf32>
    }
  }
}
// -----
