"""A model as PyTorch's exporter writes it: flat names, modules as metadata, forms of weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

SIZE = 4
MODULES = ("layers.0", "layers.0/attn", "layers.0/attn/q")


def exported() -> ModelProto:
    """Weights reach their readers as they are, transposed, or by a chain that two nodes share."""
    w = numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "w")
    q = "layers.0", "layers.0.attn", "layers.0.attn.q"
    nodes = [
        _node("Identity", ["w"], "shared"),
        _node("Transpose", ["shared"], "turned"),
        _node("MatMul", ["x", "turned"], "product", q),
        _node("Add", ["product", "shared"], "scores", q[:2]),
        _node("Transpose", ["scores"], "back", q[:2]),
        _node("Add", ["back", "w"], "y", q[:1]),
        _node("Identity", ["turned"], "result"),
    ]
    ends = {
        name: helper.make_tensor_value_info(name, 1, [SIZE, SIZE]) for name in ("x", "y", "result")
    }
    graph = helper.make_graph(nodes, "exported", [ends["x"]], [ends["y"], ends["result"]], [w])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10, producer_name="pytorch"
    )


def _node(kind: str, inputs: Sequence[str], output: str, modules: Sequence[str] = ()) -> NodeProto:
    node = helper.make_node(kind, inputs, [output], name=f"node_{output}")
    scopes = str(["", *modules, output])
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    return node
