"""Operators by the order of elements: TopK, and PopART's Sort, ReduceMedian and Bucketize."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.complaints import in_range, one_element
from popgraph.operators.lookups import i64_scalar, never_negative, taken_along
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers, requires, without_gradient
from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod, reduced


@requires("TopK")
def require_top_k(node: NodeView) -> Conflicts:
    axis, shape = node.integer("axis", -1), node.shape_of(0)
    yield from in_range("axis", [axis], node.rank_of(0))
    if node.version > 1:
        yield from one_element(node, 1)
    count = node.integer("k") if node.version == 1 else next(iter(node.integers_of(1) or []), None)
    size = shape[axis] if shape else None
    if count is not None and (count < 0 or (isinstance(size, int) and count > size)):
        most = size if isinstance(size, int) else "the size of the axis"
        yield TypeConflict(f"`K` is {count}", f"it must be from 0 to {most}")


@lowers("TopK", structural=[1])
def top_k(node: Node) -> Lowered:
    """The largest or smallest elements and their indices; sorted even if `sorted` is 0."""
    axis = node.axis(node.integer("axis", -1))
    count = node.integer("k") if node.has("k") else node.numbers(1, "the number k")[0]
    largest = bool(node.integer("largest", 1))
    places = gc.ArgTopKOp(node[0], axis=axis, count=count, largest=largest)
    return [taken_along(node, axis, places), places]


@lowers("Sort", domain=GRAPHCORE)
def sort(node: Node) -> Lowered:
    """The sorted elements and their indices; ties keep the order of indices."""
    axis = node.axis(node.integer("axis", -1))
    largest = bool(node.integer("descending"))
    places = gc.ArgTopKOp(node[0], axis=axis, count=node.shape[axis], largest=largest)
    return [taken_along(node, axis, places), _narrow(places)]


def _narrow(places: Operand) -> SSAValue:
    """Indices as i32, as PopART returns them."""
    return cast(places, dtypes.BY_NAME["i32"])


@lowers("ReduceMedian", domain=GRAPHCORE)
def reduce_median(node: Node) -> Lowered:
    """The lower median, and its index among the reduced elements."""
    given = node.integers("axes") if node.has("axes") else range(node.rank)
    axes = tuple(sorted(node.axes(given)))
    shape = reduced(node.shape, axes, bool(node.integer("keepdims", 1)))
    rows = node.on(_as_rows(node, axes))
    length = rows.shape[1]
    if not length:
        raise TypeMismatchError("ReduceMedian cannot reduce an empty axis")
    smallest = gc.ArgTopKOp(rows[0], axis=1, count=(length + 1) // 2, largest=False)
    last = sliced(smallest, {1: ((length - 1) // 2, 1, 1)})
    return [reshaped(taken_along(rows, 1, last), shape), reshaped(_narrow(last), shape)]


def _as_rows(node: Node, axes: Sequence[int]) -> SSAValue:
    """[kept elements, reduced elements]: a row for each element of the result."""
    kept = [axis for axis in range(node.rank) if axis not in axes]
    last = gc.TransposeOp(node[0], perm=(*kept, *axes)) if axes else node[0]
    return reshaped(last, [prod(node.shape[axis] for axis in group) for group in (kept, axes)])


@lowers("Bucketize", domain=GRAPHCORE)
def bucketize(node: Node) -> Lowered:
    """
    The number of boundaries < x (with `right`, <= x), by binary search.

    A NaN is after all boundaries.
    """
    axes = shape_of(node[1])
    if len(axes) != 1:
        raise TypeMismatchError(
            f"the boundaries have {len(axes)} axes", hint="give Bucketize a sorted vector"
        )
    (count,) = axes
    stays = "gt" if node.integer("right") else "ge"
    first: Operand = gc.BroadcastOp(i64_scalar(node, 0), shape=node.shape)
    end: Operand = gc.BroadcastOp(i64_scalar(node, count), shape=node.shape)
    for _ in range(count.bit_length()):
        middle = gc.ShiftOp(gc.AddOp(first, end), i64_scalar(node, 1), direction="right")
        boundary = gc.GatherOp(node[1], never_negative(middle), axis=0)
        is_open = gc.CompareOp(first, end, predicate="lt")
        is_before = gc.CompareOp(boundary, node[0], predicate=stays)
        above = gc.AndOp(is_open, gc.NotOp(is_before))
        first = gc.WhereOp(above, gc.AddOp(middle, i64_scalar(node, 1)), first)
        end = gc.WhereOp(gc.AndOp(is_open, is_before), middle, end)
    return _narrow(first)


without_gradient("Bucketize", "it only compares its input with boundaries", domain=GRAPHCORE)
