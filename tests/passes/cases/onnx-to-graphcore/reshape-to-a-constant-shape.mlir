// A Reshape whose target is a constant becomes a reshape with a static shape.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<2x3xf32>) outputs ("v1" : tensor<3x2xf32>) {
    ^bb0(%x0: tensor<2x3xf32>):
      %c0 = onnx.Initializer "c0_1" #onnx.tensor<#pg.data<"0300000000000000ffffffffffffffff" : tensor<2xi64>>>
      %v0 = onnx.Reshape.v14(%x0, %c0) -> ["v0"] named "n0" : tensor<3x2xf32>
      %v1 = onnx.Relu.v14(%v0) -> ["v1"] named "n1" : tensor<3x2xf32>
      onnx.Yield %v1 : tensor<3x2xf32>
    }
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x0">] {
  ^bb0(%x0: tensor<2x3xf32>):
    %v0 = graphcore.reshape %x0 {shape = [3, 2]} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %v1 = graphcore.relu %v0 : (tensor<3x2xf32>) -> tensor<3x2xf32>
    pg.return [#pg.bytes<"v1">], %v1 : tensor<3x2xf32>
  }
}
