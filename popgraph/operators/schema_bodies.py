"""Bodies of schemas that do not fit all types and sizes which these admit, and what mends them."""

from __future__ import annotations

from onnx import FunctionProto, helper

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
