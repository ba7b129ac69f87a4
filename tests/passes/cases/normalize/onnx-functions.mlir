// ONNX defines ThresholdedRelu by operators that the lowering supports.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<3xf32>) outputs ("v0" : tensor<3xf32>) {
    ^bb0(%x0: tensor<3xf32>):
      %v0 = onnx.ThresholdedRelu.v10(%x0) -> ["v0"] named "n0" : tensor<3xf32>
      onnx.Yield %v0 : tensor<3xf32>
    }
  }
}
// -----
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "graph" inputs ("x0" : tensor<3xf32>) outputs ("v0" : tensor<3xf32>) {
    ^bb0(%x0: tensor<3xf32>):
      %Alpha = onnx.Constant.v13() {value_float = 1.0} -> ["n0/Alpha"] : tensor<f32> attributes {rest = #pg.bytes<":%00">}
      %AlphaCast = onnx.CastLike.v15(%Alpha, %x0) -> ["n0/AlphaCast"] : tensor<f32> attributes {rest = #pg.bytes<":%00">}
      %Zero = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"00000000" : tensor<f32>>, typed, "B%00">} -> ["n0/Zero"] : tensor<f32> attributes {rest = #pg.bytes<":%00">}
      %ZeroCast = onnx.CastLike.v15(%Zero, %x0) -> ["n0/ZeroCast"] : tensor<f32> attributes {rest = #pg.bytes<":%00">}
      %AlphaLessThanX = onnx.Less.v13(%AlphaCast, %x0) -> ["n0/AlphaLessThanX"] : tensor<3xi1> attributes {rest = #pg.bytes<":%00">}
      %v0 = onnx.Where.v16(%AlphaLessThanX, %x0, %ZeroCast) -> ["v0"] : tensor<3xf32> attributes {rest = #pg.bytes<":%00">}
      onnx.Yield %v0 : tensor<3xf32>
    }
  }
}
