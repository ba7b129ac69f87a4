"""A model as PyTorch's exporter writes it: flat names, modules as metadata, forms of weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

SIZE = 4
MODULES = ("layers.0", "layers.0/attn", "layers.0/attn/q")
"""Scopes of the first layer."""


def exported(layers: int = 1) -> ModelProto:
    """Weights reach their readers as they are, transposed, or by a chain that two nodes share."""
    w = numpy_helper.from_array(np.eye(SIZE, dtype=np.float32), "w")
    nodes = [
        _node("Identity", ["w"], "shared"),
        _node("Transpose", ["shared"], "turned"),
        *(node for number in range(layers) for node in _layer(number)),
        _node("Relu", [f"h{layers - 1}"], "y"),
        _node("Identity", ["turned"], "result"),
    ]
    x, y, result = (
        helper.make_tensor_value_info(name, 1, [SIZE, SIZE]) for name in ("x", "y", "result")
    )
    graph = helper.make_graph(nodes, "exported", [x], [y, result], [w])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10, producer_name="pytorch"
    )


def _layer(number: int) -> Iterator[NodeProto]:
    layer = f"layers.{number}"
    q = layer, f"{layer}.attn", f"{layer}.attn.q"
    yield _node("MatMul", [f"h{number - 1}" if number else "x", "turned"], f"product{number}", q)
    yield _node("Add", [f"product{number}", "shared"], f"scores{number}", q[:2])
    yield _node("Transpose", [f"scores{number}"], f"back{number}", q[:2])
    yield _node("Add", [f"back{number}", "w"], f"h{number}", q[:1])


def _node(kind: str, inputs: Sequence[str], output: str, modules: Sequence[str] = ()) -> NodeProto:
    node = helper.make_node(kind, inputs, [output], name=f"node_{output}")
    scopes = str(["", *modules, output])
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    return node
