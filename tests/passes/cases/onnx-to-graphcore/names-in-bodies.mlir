// Values and arguments of bodies have the names of the model in IR text; captured values those they have outside.
builtin.module {
  onnx.Model {ir_version = 10 : i64, opsets = [#onnx.opset<"", 18>]} {
    onnx.Graph "net" inputs ("x" : tensor<2x3xf32>) outputs ("y" : tensor<*xf32>) {
    ^bb0(%x: tensor<2x3xf32>):
      %y = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"0500000000000000" : tensor<i64>>>} -> ["y/1"] : tensor<i64>
      %y_1 = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"01" : tensor<i1>>>} -> ["y/2"] : tensor<i1>
      %y_2 = onnx.Loop.v16(%y, %y_1, %x) body = {
        onnx.Graph "turn" inputs ("i" : tensor<i64>, "going" : tensor<i1>, "h" : tensor<2x3xf32>) outputs ("on", "next") {
        ^bb0(%i: tensor<i64>, %going: tensor<i1>, %h: tensor<2x3xf32>):
          %on = onnx.Identity.v16(%going) -> ["on"] : tensor<i1>
          %sum = onnx.Add.v14(%h, %x) -> ["sum"] : tensor<2x3xf32>
          %next = onnx.Constant.v13() {value = #onnx.tensor<#pg.data<"0200000000000000" : tensor<i64>>>} -> ["next/1"] : tensor<i64>
          %next_1 = onnx.Less.v13(%i, %next) -> ["next/2"] : tensor<i1>
          %next_2 = onnx.If.v16(%next_1) else_branch = {
            onnx.Graph "b" inputs () outputs ("r") {
              %r = onnx.Mul.v14(%sum, %x) -> ["r"] : tensor<2x3xf32>
              onnx.Yield %r : tensor<2x3xf32>
            }
          } then_branch = {
            onnx.Graph "a" inputs () outputs ("r") {
              %r_1 = onnx.Relu.v14(%sum) -> ["r"] : tensor<2x3xf32>
              onnx.Yield %r_1 : tensor<2x3xf32>
            }
          } -> ["next"] : tensor<2x3xf32>
          onnx.Yield %on, %next_2 : tensor<i1>, tensor<2x3xf32>
        }
      } -> ["y"] : tensor<*xf32>
      onnx.Yield %y_2 : tensor<*xf32>
    }
  }
}
// -----
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">] {
  ^bb0(%x: tensor<2x3xf32>):
    %y = graphcore.loop trips 5 carried (%x) captured (%x) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32> {
    ^bb0(%i: tensor<i64>, %h: tensor<2x3xf32>, %x_1: tensor<2x3xf32>):
      %sum = graphcore.add %h, %x_1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %next = pg.constant #pg.data<"0200000000000000" : tensor<i64>>
      %next_1 = graphcore.compare %i, %next {predicate = "lt"} : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %next_2 = graphcore.cond %next_1 captured (%sum, %x_1) : (tensor<i1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32> {
      ^bb0(%sum_1: tensor<2x3xf32>, %x_2: tensor<2x3xf32>):
        %r = graphcore.relu %sum_1 : (tensor<2x3xf32>) -> tensor<2x3xf32>
        pg.yield %r : tensor<2x3xf32>
      } else {
      ^bb0(%sum_2: tensor<2x3xf32>, %x_3: tensor<2x3xf32>):
        %r_1 = graphcore.mul %sum_2, %x_3 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
        pg.yield %r_1 : tensor<2x3xf32>
      }
      pg.yield %next_2 : tensor<2x3xf32>
    }
    pg.return [#pg.bytes<"y">], %y : tensor<2x3xf32>
  }
}
