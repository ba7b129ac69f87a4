"""How do reductions become graphcore's?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.passes.onnx_to_graphcore.node import Node
from popgraph.passes.onnx_to_graphcore.registry import Lowered, lowers


class Reduce(Protocol):
    """A constructor of a reduction."""

    def __call__(self, x: Operand, *, axes: tuple[int, ...], keepdims: bool) -> Operand: ...


def reduced_axes(node: Node) -> tuple[int, ...]:
    axes = node.numbers_or_ints("axes", 1)
    if not axes:
        return () if node.integer("noop_with_empty_axes") else tuple(range(node.rank))
    return tuple(sorted(node.axes(axes)))


def reduce_with(
    operation: Reduce,
    before: Callable[[Operand], Operand] = lambda x: x,
    after: Callable[[Operand], Operand] = lambda x: x,
) -> Callable[[Node], Lowered]:
    """A lowering: `after(reduce(before(x)))`."""

    def lower(node: Node) -> Lowered:
        axes = reduced_axes(node)
        inner = before(node[0])
        if axes:
            inner = operation(inner, axes=axes, keepdims=bool(node.integer("keepdims", 1)))
        return after(inner)

    return lower


def _square(x: Operand) -> Operand:
    return gc.MulOp(x, x)


lowers("ReduceSum")(reduce_with(gc.ReduceSumOp))
lowers("ReduceMean")(reduce_with(gc.ReduceMeanOp))
lowers("ReduceMax")(reduce_with(gc.ReduceMaxOp))
lowers("ReduceMin")(reduce_with(gc.ReduceMinOp))
lowers("ReduceProd")(reduce_with(gc.ReduceProdOp))
lowers("ReduceL1")(reduce_with(gc.ReduceSumOp, before=gc.AbsOp))
lowers("ReduceL2")(reduce_with(gc.ReduceSumOp, before=_square, after=gc.SqrtOp))
lowers("ReduceSumSquare")(reduce_with(gc.ReduceSumOp, before=_square))
lowers("ReduceLogSum")(reduce_with(gc.ReduceSumOp, after=gc.LogOp))


@lowers("ReduceLogSumExp")
def reduce_log_sum_exp(node: Node) -> Lowered:
    """Subtracting the largest element keeps exp from overflowing."""
    axes = reduced_axes(node)
    if not axes:
        return node[0]
    peak: Operand = gc.ReduceMaxOp(node[0], axes=axes, keepdims=True)
    infinite = gc.CompareOp(gc.AbsOp(peak), node.scalar(math.inf), predicate="eq")
    peak = gc.WhereOp(infinite, node.scalar(0.0), peak)
    total = gc.ReduceSumOp(gc.ExpOp(gc.SubOp(node[0], peak)), axes=axes, keepdims=True)
    result = gc.AddOp(gc.LogOp(total), peak)
    if node.integer("keepdims", 1):
        return result
    shape = tuple(size for axis, size in enumerate(node.shape) if axis not in axes)
    return gc.ReshapeOp(result, shape=shape)


class ArgReduce(Protocol):
    """A constructor of an operation that finds an extremum's place."""

    def __call__(self, x: Operand, *, axis: int, keepdims: bool, last: bool) -> Operand: ...


def _arg(operation: ArgReduce) -> Callable[[Node], Lowered]:
    def lower(node: Node) -> Lowered:
        return operation(
            node[0],
            axis=node.axis(node.integer("axis")),
            keepdims=bool(node.integer("keepdims", 1)),
            last=bool(node.integer("select_last_index")),
        )

    return lower


lowers("ArgMax")(_arg(gc.ArgMaxOp))
lowers("ArgMin")(_arg(gc.ArgMinOp))
