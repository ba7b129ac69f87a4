// A shape that follows from another shape becomes a constant. Nodes that only served it are erased.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x" : tensor<4x3xf32>) outputs ("y" : tensor<2x6xf32>) {
    ^bb0(%x: tensor<4x3xf32>):
      %zero = onnx.Initializer "zero" #onnx.tensor<#pg.data<"0000000000000000" : tensor<i64>>>
      %two = onnx.Initializer "two" #onnx.tensor<#pg.data<"0200000000000000" : tensor<i64>>>
      %axes = onnx.Initializer "axes" #onnx.tensor<#pg.data<"0000000000000000" : tensor<1xi64>>>
      %shape = onnx.Shape.v15(%x) -> ["shape"] named "n0" : tensor<2xi64>
      %rows = onnx.Gather.v13(%shape, %zero) -> ["rows"] named "n1" : tensor<i64>
      %half = onnx.Div.v14(%rows, %two) -> ["half"] named "n2" : tensor<i64>
      %first = onnx.Unsqueeze.v13(%half, %axes) -> ["first"] named "n3" : tensor<1xi64>
      %rest = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"ffffffffffffffff" : tensor<1xi64>>>} -> ["rest"] named "n4" : tensor<1xi64>
      %wanted = onnx.Concat.v13(%first, %rest) {axis = 0} -> ["wanted"] named "n5" : tensor<2xi64>
      %y = onnx.Reshape.v14(%x, %wanted) -> ["y"] named "n6" : tensor<2x6xf32>
      onnx.Yield %y : tensor<2x6xf32>
    }
  }
}
// -----
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x" : tensor<4x3xf32>) outputs ("y" : tensor<2x6xf32>) {
    ^bb0(%x: tensor<4x3xf32>):
      %zero = onnx.Initializer "zero" #onnx.tensor<#pg.data<"0000000000000000" : tensor<i64>>>
      %two = onnx.Initializer "two" #onnx.tensor<#pg.data<"0200000000000000" : tensor<i64>>>
      %axes = onnx.Initializer "axes" #onnx.tensor<#pg.data<"0000000000000000" : tensor<1xi64>>>
      %wanted = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"0200000000000000ffffffffffffffff" : tensor<2xi64>>>} -> ["wanted"] : tensor<2xi64>
      %y = onnx.Reshape.v14(%x, %wanted) -> ["y"] named "n6" : tensor<2x6xf32>
      onnx.Yield %y : tensor<2x6xf32>
    }
  }
}
