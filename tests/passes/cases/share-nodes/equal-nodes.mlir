// Equal constants and equal nodes become one; outputs of the graph keep their nodes.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2xf32>) outputs ("v3" : tensor<2xf32>, "v4" : tensor<2xf32>) {
    ^bb0(%x0: tensor<2xf32>):
      %c0 = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"0000803f" : tensor<1xf32>>>} -> ["c0"] : tensor<1xf32>
      %c1 = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"0000803f" : tensor<1xf32>>>} -> ["c1"] : tensor<1xf32>
      %v0 = onnx.Add.v14(%x0, %c0) -> ["v0"] named "n0" : tensor<2xf32>
      %v1 = onnx.Add.v14(%x0, %c1) -> ["v1"] named "n1" : tensor<2xf32>
      %v2 = onnx.Mul.v14(%v0, %v1) -> ["v2"] named "n2" : tensor<2xf32>
      %v3 = onnx.Neg.v13(%v2) -> ["v3"] named "n3" : tensor<2xf32>
      %v4 = onnx.Neg.v13(%v2) -> ["v4"] named "n4" : tensor<2xf32>
      onnx.Yield %v3, %v4 : tensor<2xf32>, tensor<2xf32>
    }
  }
}
// -----
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2xf32>) outputs ("v3" : tensor<2xf32>, "v4" : tensor<2xf32>) {
    ^bb0(%x0: tensor<2xf32>):
      %c0 = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"0000803f" : tensor<1xf32>>>} -> ["c0"] : tensor<1xf32>
      %v0 = onnx.Add.v14(%x0, %c0) -> ["v0"] named "n0" : tensor<2xf32>
      %v2 = onnx.Mul.v14(%v0, %v0) -> ["v2"] named "n2" : tensor<2xf32>
      %v3 = onnx.Neg.v13(%v2) -> ["v3"] named "n3" : tensor<2xf32>
      %v4 = onnx.Neg.v13(%v2) -> ["v4"] named "n4" : tensor<2xf32>
      onnx.Yield %v3, %v4 : tensor<2xf32>, tensor<2xf32>
    }
  }
}
