// A Compress with a constant condition becomes a lookup of the selected indices.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>) outputs ("v0" : tensor<2x?xf32>) {
    ^bb0(%x0: tensor<2x3xf32>):
      %c0 = onnx.Initializer "c0" #onnx.tensor<#pg.data<"000101" : tensor<3xi1>>>
      %v0 = onnx.Compress.v11(%x0, %c0) {axis = 1} -> ["v0"] named "n0" : tensor<2x?xf32>
      onnx.Yield %v0 : tensor<2x?xf32>
    }
  }
}
// -----
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>) outputs ("v0" : tensor<2x?xf32>) {
    ^bb0(%x0: tensor<2x3xf32>):
      %c0 = onnx.Initializer "c0" #onnx.tensor<#pg.data<"000101" : tensor<3xi1>>>
      %0 = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"01000000000000000200000000000000" : tensor<2xi64>>>} -> ["v0/places"] : tensor<2xi64>
      %v0 = onnx.Gather.v13(%x0, %0) {axis = 1} -> ["v0"] : tensor<2x?xf32>
      onnx.Yield %v0 : tensor<2x?xf32>
    }
  }
}
