"""Reductions along axes, ArgMax and ArgMin, and prefix sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.complaints import axes_of, in_range, one_element
from popgraph.operators.movement import sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, as_values, follows_data_sizes, lowers, requires
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
    A lowering to `after(reduce(before(x)))`.

    f16 and bf16 are computed in f32 throughout; a plain reduction does this itself.
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
    """A lowering of max or min; over no elements, the result is the type's minimum or maximum."""
    usual = reduce_with(operation)

    def lower(node: Node) -> Lowered:
        axes = reduced_axes(node)
        if all(node.shape[axis] for axis in axes):
            return usual(node)
        shape = reduced(node.shape, axes, bool(node.integer("keepdims", 1)))
        return gc.BroadcastOp(node.scalar(limit(node.dtype, not largest)), shape=shape)

    return lower


def limit(dtype: DType, largest: bool) -> float:
    """The largest or least value of an element type; infinite for floats."""
    if dtype.is_float:
        return math.inf if largest else -math.inf
    if dtype.name == "bool":
        return largest
    numbers = np.iinfo(np.dtype(dtype.numpy.str))
    return int(numbers.max if largest else numbers.min)


def in_reals(lower: Callable[[Node], Lowered]) -> Callable[[Node], Lowered]:
    """Extends a lowering to integers: computes in f64 and truncates."""

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


@in_reals
def reduce_log_sum_exp(node: Node) -> Lowered:
    """max + log(sum(exp(x - max))): exp cannot overflow."""
    axes = reduced_axes(node)
    if not axes:
        return node[0]
    if 0 in node.shape:
        return reduce_with(gc.ReduceSumOp, gc.ExpOp, gc.LogOp)(node)
    wide = computing(node)
    x = cast(node[0], wide)
    peak: Operand = gc.ReduceMaxOp(x, axes=axes, keepdims=True)
    infinite = gc.CompareOp(gc.AbsOp(peak), node.scalar(math.inf, wide), predicate="eq")
    # The gradient through the maximum is mathematically zero; its rounding errors are not.
    peak = gc.DetachOp(gc.WhereOp(infinite, node.scalar(0.0, wide), peak))
    total = gc.ReduceSumOp(gc.ExpOp(gc.SubOp(x, peak)), axes=axes, keepdims=True)
    result = cast(gc.AddOp(gc.LogOp(total), peak), node.dtype)
    if node.integer("keepdims", 1):
        return result
    return gc.ReshapeOp(result, shape=reduced(node.shape, axes, keepdims=False))


REDUCTIONS = {
    "ReduceL1": reduce_with(gc.ReduceSumOp, before=gc.AbsOp),
    "ReduceL2": in_reals(reduce_with(gc.ReduceSumOp, before=_square, after=gc.SqrtOp)),
    "ReduceLogSum": in_reals(reduce_with(gc.ReduceSumOp, after=gc.LogOp)),
    "ReduceLogSumExp": reduce_log_sum_exp,
    "ReduceMax": extremum(gc.ReduceMaxOp, largest=True),
    "ReduceMean": reduce_with(gc.ReduceMeanOp),
    "ReduceMin": extremum(gc.ReduceMinOp, largest=False),
    "ReduceProd": reduce_with(gc.ReduceProdOp),
    "ReduceSum": reduce_with(gc.ReduceSumOp),
    "ReduceSumSquare": reduce_with(gc.ReduceSumOp, before=_square),
}
"""The lowerings of reductions by their names."""

for _name, _lower in REDUCTIONS.items():
    lowers(_name, structural=[1])(_lower)


@requires(*REDUCTIONS)
def require_reduction(node: NodeView) -> Conflicts:
    yield from axes_of(node, "axes", 1, node.rank_of(0))


@requires("ArgMax", "ArgMin")
def require_extremum(node: NodeView) -> Conflicts:
    yield from in_range("axis", [node.integer("axis")], node.rank_of(0))
    shape, axis = node.shape_of(0), node.integer("axis")
    if shape and shape[axis] == 0:
        yield TypeConflict(f"axis {axis} is empty", "use an axis with at least one element")


@lowers("ArgMax", "ArgMin")
def place_of_extremum(node: Node) -> Lowered:
    operation = gc.ArgMaxOp if node.op.op_type == "ArgMax" else gc.ArgMinOp
    return operation(
        node[0],
        axis=node.axis(node.integer("axis")),
        keepdims=bool(node.integer("keepdims", 1)),
        last=bool(node.integer("select_last_index")),
    )


JOINS = {"CumSum": (gc.AddOp, 0), "CumProd": (gc.MulOp, 1)}
"""The operations of prefix sums and products, with their neutral elements."""


@requires(*JOINS)
def require_running(node: NodeView) -> Conflicts:
    yield from one_element(node, 1)
    yield from in_range("axis", node.integers_of(1) or [], node.rank_of(0))


@lowers(*JOINS, structural=[1])
def running(node: Node) -> Lowered:
    """
    A Hillis-Steele scan of radix `joined_results`: O(log size) rounds.

    Each round joins an element with those at 1, 2, .. times the current distance. They are
    slices of one copy, padded with neutral elements in front. Radix 2 is 1.14 to 1.39 times as
    slow (`Tuning.joined_results`): it copies the data log2(n) instead of log4(n) times.
    """
    join, neutral = JOINS[node.op.op_type]
    axis = node.axis(node.numbers(1, "the axis")[0])
    size = node.shape[axis]
    backwards = {axis: (size - 1, size, -1)}
    value = cast(node[0], computing(node))
    if node.integer("reverse"):
        value = sliced(value, backwards)
    if node.integer("exclusive"):
        (value,) = _moved(value, axis, [1], neutral)
    step, joined = 1, node.lowering.tuning.joined_results
    while step < size:
        ways = [step * count for count in range(1, joined) if step * count < size]
        values = [value, *_moved(value, axis, ways, neutral)]
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=False)
            rest = values[len(values) - len(values) % 2 :]
            values = [join(*pair).result for pair in pairs] + rest
        (value,) = values
        step *= joined
    value = cast(value, node.dtype)
    return sliced(value, backwards) if node.integer("reverse") else value


def _moved(value: SSAValue, axis: int, ways: Sequence[int], neutral: int) -> list[SSAValue]:
    """Copies shifted along an axis by each distance (ascending), filled with `neutral`."""
    shape, most = shape_of(value), min(ways[-1], shape_of(value)[axis])
    kept = sliced(value, {axis: (0, shape[axis] - min(ways), 1)}) if shape[axis] else value
    low = [most if at == axis else 0 for at in range(len(shape))]
    zeros = [0] * len(shape)
    number = float(neutral) if dtype_of(value).is_float else neutral
    padded = gc.PadOp(kept, low=low, high=zeros, interior=zeros, value=number).result
    return [sliced(padded, {axis: (most - by, shape[axis], 1)}) for by in ways]


follows_data_sizes(
    "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
    "ReduceMin ReduceProd ReduceSum ReduceSumSquare",
)
