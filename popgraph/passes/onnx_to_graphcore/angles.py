"""How do angles by their sines, and areas under hyperbolas, become graphcore's?"""

from __future__ import annotations

import math
from collections.abc import Callable

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.passes.onnx_to_graphcore.node import Node
from popgraph.passes.onnx_to_graphcore.registry import GRAPHCORE, Lowered, lowers


def _half_sum(node: Node, join: Callable[[Operand, Operand], Operand]) -> Operand:
    """(e^x + e^-x) / 2, or their difference."""
    both = join(gc.ExpOp(node[0]), gc.ExpOp(gc.NegOp(node[0])))
    return gc.MulOp(both, node.scalar(0.5))


lowers("Cosh")(lambda node: _half_sum(node, gc.AddOp))
lowers("Sinh")(lambda node: _half_sum(node, gc.SubOp))


def _arcsine(node: Node) -> Operand:
    """The angle of a right triangle whose hypotenuse is 1; infinity stands for its upright."""
    x = node[0]
    adjacent = gc.SqrtOp(gc.SubOp(node.scalar(1.0), gc.MulOp(x, x)))
    return gc.AtanOp(gc.DivOp(x, adjacent))


lowers("Asin")(_arcsine)
lowers("Acos")(lambda node: gc.SubOp(node.scalar(math.pi / 2), _arcsine(node)))


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


@lowers("Asinh")
def area_of_sine(node: Node) -> Lowered:
    """log(x + sqrt(x^2 + 1)) of |x|, as log(1 + ...) for the sake of small x."""
    negative = gc.CompareOp(node[0], node.scalar(0.0), predicate="lt")
    x = gc.WhereOp(negative, gc.NegOp(node[0]), node[0])
    one, square = node.scalar(1.0), gc.MulOp(x, x)
    share = gc.DivOp(square, gc.AddOp(one, gc.SqrtOp(gc.AddOp(square, one))))
    area = gc.Log1pOp(gc.AddOp(x, share))
    return gc.WhereOp(negative, gc.NegOp(area), area)


@lowers("Acosh")
def area_of_cosine(node: Node) -> Lowered:
    x = node[0]
    root = gc.SqrtOp(gc.SubOp(gc.MulOp(x, x), node.scalar(1.0)))
    return gc.LogOp(gc.AddOp(x, root))


@lowers("Atanh")
def area_of_tangent(node: Node) -> Lowered:
    """Half of log((1 + x) / (1 - x))."""
    twice = gc.AddOp(node[0], node[0])
    ratio = gc.DivOp(twice, gc.SubOp(node.scalar(1.0), node[0]))
    return gc.MulOp(gc.Log1pOp(ratio), node.scalar(0.5))
