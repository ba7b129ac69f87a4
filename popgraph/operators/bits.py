"""Lowers BitShift and BitCast."""

from __future__ import annotations

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import dtype_of
from popgraph.operators.arithmetic import cast
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, chooses, lowers, without_gradient
from popgraph.support import dtypes


@lowers("BitShift")
def bit_shift(node: Node) -> Lowered:
    return gc.ShiftOp(node[0], node[1], direction=node.text("direction").lower())


@lowers("BitCast")
def bit_cast(node: Node) -> Lowered:
    """A bool has the bits of 0 or of 1, in eight of them."""
    byte, target = dtypes.BY_NAME["u8"], dtypes.BY_ONNX.get(node.integer("to"))
    if target is None or {"c64", "c128"} & {target.name, node.dtype.name}:
        raise node.unsupported("a type without real numbers", "take the parts apart before")
    value = node[0] if node.dtype.name != "bool" else cast(node[0], byte)
    if dtype_of(value) == target:
        return value
    within = byte if target.name == "bool" else target
    return cast(gc.BitcastOp(value, to=element_types.to_ir(within)), target)


chooses("BitShift", direction=("LEFT", "RIGHT"))

without_gradient("BitCast", "it is about the bits of numbers, which have no slope")
