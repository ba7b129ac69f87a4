"""Lowers ONNX's reductions, ArgMax and ArgMin to graphcore."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, as_values, lowers
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.shapes import reduced


class Reduce(Protocol):
    """A constructor of a reduction."""

    def __call__(self, x: Operand, *, axes: tuple[int, ...], keepdims: bool) -> Operand: ...


def reduced_axes(node: Node) -> tuple[int, ...]:
    axes = node.numbers_or_ints("axes", 1)
    if not axes:
        return () if node.integer("noop_with_empty_axes") else tuple(range(node.rank))
    return tuple(sorted(node.axes(axes)))


def _same(x: Operand) -> Operand:
    return x


def reduce_with(
    operation: Reduce,
    before: Callable[[Operand], Operand] = _same,
    after: Callable[[Operand], Operand] = _same,
) -> Callable[[Node], Lowered]:
    """
    A lowering: `after(reduce(before(x)))`.

    Of halves, what is done before and after is done in single precision, as the sum is.
    """

    def lower(node: Node) -> Lowered:
        axes = reduced_axes(node)
        plain = before is after is _same
        inner = before(cast(node[0], node.dtype if plain else computing(node)))
        if axes:
            inner = operation(inner, axes=axes, keepdims=bool(node.integer("keepdims", 1)))
        return cast(after(inner), node.dtype)

    return lower


def extremum(operation: Reduce, largest: bool) -> Callable[[Node], Lowered]:
    """A lowering; of no elements the result is the least (or largest) number there is."""
    usual = reduce_with(operation)

    def lower(node: Node) -> Lowered:
        axes = reduced_axes(node)
        if all(node.shape[axis] for axis in axes):
            return usual(node)
        shape = reduced(node.shape, axes, bool(node.integer("keepdims", 1)))
        return gc.BroadcastOp(node.scalar(limit(node.dtype, not largest)), shape=shape)

    return lower


def limit(dtype: DType, largest: bool) -> float:
    """The largest (or least) number of an element type; infinite for floats."""
    if dtype.is_float:
        return math.inf if largest else -math.inf
    if dtype.name == "bool":
        return largest
    numbers = np.iinfo(np.dtype(dtype.numpy.str))
    return int(numbers.max if largest else numbers.min)


def in_reals(lower: Callable[[Node], Lowered]) -> Callable[[Node], Lowered]:
    """Of whole numbers, too: computed in double precision, and cut off behind the point."""

    def lowered(node: Node) -> Lowered:
        if node.dtype.is_float:
            return lower(node)
        wide = node.on(cast(node[0], dtypes.BY_NAME["f64"]))
        (result,) = as_values(lower(wide))
        assert result is not None, "a reduction has one result"
        return cast(result, node.dtype)

    return lowered


def _square(x: Operand) -> Operand:
    return gc.MulOp(x, x)


lowers("ReduceSum", structural=[1])(reduce_with(gc.ReduceSumOp))
lowers("ReduceMean", structural=[1])(reduce_with(gc.ReduceMeanOp))
lowers("ReduceMax", structural=[1])(extremum(gc.ReduceMaxOp, largest=True))
lowers("ReduceMin", structural=[1])(extremum(gc.ReduceMinOp, largest=False))
lowers("ReduceProd", structural=[1])(reduce_with(gc.ReduceProdOp))
lowers("ReduceL1", structural=[1])(reduce_with(gc.ReduceSumOp, before=gc.AbsOp))
lowers("ReduceSumSquare", structural=[1])(reduce_with(gc.ReduceSumOp, before=_square))


@in_reals
def reduce_log_sum_exp(node: Node) -> Lowered:
    """Subtracting the largest element keeps exp from overflowing."""
    axes = reduced_axes(node)
    if not axes:
        return node[0]
    if 0 in node.shape:
        return reduce_with(gc.ReduceSumOp, gc.ExpOp, gc.LogOp)(node)
    wide = computing(node)
    x = cast(node[0], wide)
    peak: Operand = gc.ReduceMaxOp(x, axes=axes, keepdims=True)
    infinite = gc.CompareOp(gc.AbsOp(peak), node.scalar(math.inf, wide), predicate="eq")
    # The slope by way of the peak is zero; what rounding makes of it would all go to one element.
    peak = gc.DetachOp(gc.WhereOp(infinite, node.scalar(0.0, wide), peak))
    total = gc.ReduceSumOp(gc.ExpOp(gc.SubOp(x, peak)), axes=axes, keepdims=True)
    result = cast(gc.AddOp(gc.LogOp(total), peak), node.dtype)
    if node.integer("keepdims", 1):
        return result
    return gc.ReshapeOp(result, shape=reduced(node.shape, axes, keepdims=False))


lowers("ReduceL2", structural=[1])(
    in_reals(reduce_with(gc.ReduceSumOp, before=_square, after=gc.SqrtOp))
)
lowers("ReduceLogSum", structural=[1])(in_reals(reduce_with(gc.ReduceSumOp, after=gc.LogOp)))
lowers("ReduceLogSumExp", structural=[1])(reduce_log_sum_exp)


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
