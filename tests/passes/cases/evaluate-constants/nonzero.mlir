// NonZero has no kernel: with a constant operand it is evaluated at compile time. Other nodes of
// constants are folded as operations of graphcore.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>) outputs ("v2" : tensor<?xf32>) {
    ^bb0(%x0: tensor<2x3xf32>):
      %c0 = onnx.Initializer "c0" #onnx.tensor<#pg.data<"000100010100" : tensor<2x3xi1>>>
      %v0 = onnx.NonZero.v13(%c0) -> ["v0"] named "n0" : tensor<2x?xi64>
      %v1 = onnx.Transpose.v13(%v0) {perm = [1, 0]} -> ["v1"] named "n1" : tensor<?x2xi64>
      %v2 = onnx.GatherND.v13(%x0, %v1) -> ["v2"] named "n2" : tensor<?xf32>
      onnx.Yield %v2 : tensor<?xf32>
    }
  }
}
// -----
#data = #pg.data<"000000000000000001000000000000000100000000000000010000000000000000000000000000000100000000000000" : tensor<2x3xi64>>
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>) outputs ("v2" : tensor<?xf32>) {
    ^bb0(%x0: tensor<2x3xf32>):
      %c0 = onnx.Initializer "c0" #onnx.tensor<#pg.data<"000100010100" : tensor<2x3xi1>>>
      %v0 = onnx.Constant.v13() {value = #onnx.tensor<#data>} -> ["v0"] : tensor<2x3xi64>
      %v1 = onnx.Transpose.v13(%v0) {perm = [1, 0]} -> ["v1"] named "n1" : tensor<?x2xi64>
      %v2 = onnx.GatherND.v13(%x0, %v1) -> ["v2"] named "n2" : tensor<?xf32>
      onnx.Yield %v2 : tensor<?xf32>
    }
  }
}
