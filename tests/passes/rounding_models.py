"""Models that round to few bits."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from popgraph.support import dtypes


def quantized_and_back(kind: str, scale: float) -> ModelProto:
    """`x` of eight elements in bytes, `q`, and what these stand for, `y`."""
    row = dtypes.BY_NAME[kind]
    zero = np.array(3, row.numpy)
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
        [
            helper.make_tensor_value_info("q", row.onnx, [8]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [8]),
        ],
        [numpy_helper.from_array(np.float32(scale), "s"), numpy_helper.from_array(zero, "z")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
