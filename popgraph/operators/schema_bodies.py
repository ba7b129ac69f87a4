"""Helpers for pages that mend the body in a schema, which does not fit all types it admits."""

from __future__ import annotations

from onnx import FunctionProto, TensorProto, helper

from popgraph.dialects import element_types
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.record import mends


def is_of(op: SchemaOp, index: int, *kinds: str) -> bool:
    """Whether an input has numbers of an element type whose name begins with one of `kinds`."""
    element = getattr(NodeView(op).type_of(index), "element_type", UNKNOWN)
    is_number = element_types.is_number(element)
    return is_number and element_types.from_ir(element).name.startswith(kinds)


def renamed(proto: FunctionProto, old: str, new: str) -> None:
    """Makes all nodes read the value `new` instead of `old`."""
    for node in proto.node:
        node.input[:] = [new if name == old else name for name in node.input]


@mends("CenterCropPad")
def retype_sizes(proto: FunctionProto, op: SchemaOp) -> None:
    """The body of CenterCropPad computes with its sizes and those of Shape, which are i64."""
    if is_of(op, 1, "i32"):
        sizes = proto.input[1]
        renamed(proto, sizes, "popgraph_sizes")
        number = TensorProto.INT64
        proto.node.insert(0, helper.make_node("Cast", [sizes], ["popgraph_sizes"], to=number))


@mends("AffineGrid")
def allow_size_one(proto: FunctionProto, op: SchemaOp) -> None:
    """
    Mends the body of AffineGrid where a spatial size is 1.

    Squeeze(r)  ->  Squeeze(r, [1]): it means the axis that was split, not every axis of size 1.
    2 / (size - 1)  ->  2 / max(size - 1, 1), so the only coordinate is -1 (the start). The body
    itself guards the depth so; onnx.reference has -1 for every axis, onnxruntime has 1.
    """
    for graph in (attribute.g for node in proto.node for attribute in node.attribute):
        for at, inner in reversed(list(enumerate(graph.node))):
            if inner.op_type == "Squeeze" and len(inner.input) == 1:
                inner.input.append("one_1d")
            elif inner.op_type == "Sub":
                intervals, size = inner.output[0], inner.input[0]
                inner.output[0] = f"popgraph_{size}_less_one"
                bounded = helper.make_node("Max", [inner.output[0], "one_f"], [intervals])
                graph.node.insert(at + 1, bounded)
