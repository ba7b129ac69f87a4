"""PopART's arctangent of two numbers, made of that of one."""

from __future__ import annotations

import math

from popgraph.dialects import graphcore as gc
from popgraph.passes.onnx_to_graphcore.node import Node
from popgraph.passes.onnx_to_graphcore.registry import GRAPHCORE, Lowered, lowers


@lowers("Atan2", domain=GRAPHCORE)
def arctangent_of_two(node: Node) -> Lowered:
    """The arctangent of the flatter of y/x and -x/y, and the angle from which that counts."""
    y, x = node[0], node[1]
    zero, half = node.scalar(0.0), node.scalar(math.pi / 2)
    steep = gc.CompareOp(gc.AbsOp(y), gc.AbsOp(x), predicate="gt")
    below = gc.CompareOp(y, zero, predicate="lt")
    over, under = gc.WhereOp(steep, gc.NegOp(x), y), gc.WhereOp(steep, y, x)
    nowhere = gc.CompareOp(under, zero, predicate="eq")
    # Chosen twice, so that neither the angle nor a gradient is undefined at the origin.
    ratio = gc.DivOp(over, gc.WhereOp(nowhere, node.scalar(1.0), under))
    angle = gc.WhereOp(nowhere, zero, gc.AtanOp(ratio))
    quarter = gc.WhereOp(below, gc.NegOp(half), half)
    behind = gc.WhereOp(gc.CompareOp(x, zero, predicate="lt"), gc.AddOp(quarter, quarter), zero)
    return gc.AddOp(angle, gc.WhereOp(steep, quarter, behind))
