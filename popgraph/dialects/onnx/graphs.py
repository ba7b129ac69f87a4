"""The input types of an onnx module."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from popgraph.dialects.onnx.containers import model_of


def input_types(module: ModuleOp) -> dict[str, Attribute]:
    """The types of the graph's inputs by name (initializers are none of them)."""
    graph = model_of(module).graph
    return {
        name: argument.type
        for name, argument in zip(graph.input_names, graph.block.args, strict=True)
    }
