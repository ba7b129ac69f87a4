"""Bodies of schemas that do not fit all types and sizes which these admit, and what mends them."""

from __future__ import annotations

from onnx import FunctionProto, TensorProto, helper

from popgraph.dialects import element_types
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.operators.record import mends


def _is_of(op: SchemaOp, index: int, *kinds: str) -> bool:
    """Whether an input is there and of an element type whose name begins so."""
    values = op.input_values()
    value = values[index] if index < len(values) else None
    element = getattr(value.type, "element_type", None) if value is not None else None
    return (
        element is not None
        and element_types.is_number(element)
        and element_types.from_ir(element).name.startswith(kinds)
    )


def _renamed(proto: FunctionProto, old: str, new: str) -> None:
    """All nodes read another value."""
    for node in proto.node:
        node.input[:] = [new if name == old else name for name in node.input]


@mends("Attention")
def retype_mask(proto: FunctionProto, op: SchemaOp) -> None:
    """
    Scores + a mask of integers  ->  Scores + the mask as they are

    The body of Attention puts infinities into its mask, which no integer is.
    """
    if _is_of(op, 3, "i", "u"):
        query, mask = proto.input[0], proto.input[3]
        _renamed(proto, mask, "popgraph_mask")
        made = helper.make_node("CastLike", [mask, query], ["popgraph_mask"])
        proto.node.insert(0, made)


@mends("CenterCropPad")
def retype_sizes(proto: FunctionProto, op: SchemaOp) -> None:
    """The body of CenterCropPad computes with its sizes and those of Shape, which are i64."""
    if _is_of(op, 1, "i32"):
        sizes = proto.input[1]
        _renamed(proto, sizes, "popgraph_sizes")
        number = TensorProto.INT64
        proto.node.insert(0, helper.make_node("Cast", [sizes], ["popgraph_sizes"], to=number))


@mends("Shrink")
def retype_bound(proto: FunctionProto, op: SchemaOp) -> None:
    """The body of Shrink compares with a negative number, which nothing unsigned is."""
    if _is_of(op, 0, "u"):
        (negative,) = (node for node in proto.node if node.op_type == "Neg")
        (compared,) = (node for node in proto.node if negative.output[0] in node.input)
        negative.input[:] = ["Lambd"]
        compared.input[:] = ["popgraph_float", negative.output[0]]
        made = helper.make_node("CastLike", [proto.input[0], "Lambd"], ["popgraph_float"])
        proto.node.insert(list(proto.node).index(compared), made)


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
