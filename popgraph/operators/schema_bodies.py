"""Helpers of pages that repair a schema's function body for types it fails on."""

from __future__ import annotations

from onnx import FunctionProto

from popgraph.dialects import element_types
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.dialects.onnx.view import NodeView


def is_of(op: SchemaOp, index: int, *kinds: str) -> bool:
    """Whether an input is numeric, and its element type's name begins with one of `kinds`."""
    element = getattr(NodeView(op).type_of(index), "element_type", UNKNOWN)
    is_number = element_types.is_number(element)
    return is_number and element_types.from_ir(element).name.startswith(kinds)


def renamed(proto: FunctionProto, old: str, new: str) -> None:
    """Renames an input of all nodes from `old` to `new`."""
    for node in proto.node:
        node.input[:] = [new if name == old else name for name in node.input]
