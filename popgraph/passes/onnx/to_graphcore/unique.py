"""Lowers Unique: equal elements are neighbours once they are sorted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.custom import OWN
from popgraph.passes.onnx.to_graphcore.arithmetic import cast
from popgraph.passes.onnx.to_graphcore.indexing import never_negative, whole
from popgraph.passes.onnx.to_graphcore.movement import reshaped, sliced
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import Lowered, lowers
from popgraph.passes.onnx.to_graphcore.selections import (
    I64,
    U32,
    U64,
    bits_in_order,
    count_of,
    shape_with,
)
from popgraph.support import dtypes
from popgraph.support.errors import NeedsHostError
from popgraph.support.shapes import Shape, prod

MOST_COLUMNS = 16
"""Slices of more elements are compared in Python: each of their elements is a sort of its own."""


@lowers("Unique", domain=OWN)
def unique(node: Node) -> Lowered:
    """
    The first of equal neighbours in sorted order, a group for each.

    NaNs are equal and come last. The sort is stable, so the first of equals has the lowest
    position.
    """
    shape, axis, rows = _rows(node)
    length = shape[axis]
    data = node[0] if node.has("axis") else SSAValue.get(reshaped(node[0], shape))
    if not length:
        none, empty = node.literal(np.zeros(0, np.int64)), node.literal(np.zeros(1, np.int64))
        whole_shape = node.literal(np.array(shape, np.int64))
        return [data, none, none, none, whole_shape, empty, empty, empty]
    order = _sorted(node, rows)
    groups = _Groups(node, order, _begins(node, _taken(rows, order)))
    if not node.integer("sorted", 1):
        groups = _ByAppearance(node, order, groups.begins, groups)
    count = count_of(groups.begins)
    sizes: list[int | Operand] = list(shape)
    sizes[axis] = count
    found = gc.GatherOp(data, never_negative(groups.first), axis=axis)
    each, many = node.literal(np.array([length])), shape_with(node, [count])
    inverse = groups.inverse if node.wants(2) else None
    counts = groups.counts if node.wants(3) else None
    return [found, groups.first, inverse, counts, shape_with(node, sizes), many, each, many]


def _rows(node: Node) -> tuple[Shape, int, Operand]:
    """The shape of the data, the axis of its slices, and the slices as rows."""
    if not node.has("axis"):
        count = prod(node.shape)
        return (count,), 0, reshaped(node[0], (count, 1))
    axis, shape = node.axis(node.integer("axis")), node.shape
    others = [at for at in range(len(shape)) if at != axis]
    columns = prod(shape[at] for at in others)
    if not 0 < columns <= MOST_COLUMNS:
        raise NeedsHostError(f"Unique of slices of {columns} elements is not compiled")
    first = gc.TransposeOp(node[0], perm=(axis, *others)).result if axis else node[0]
    return shape, axis, reshaped(first, (shape[axis], columns))


def _taken(values: Operand, places: Operand) -> SSAValue:
    """The rows at these places."""
    return gc.GatherOp(SSAValue.get(values), never_negative(places), axis=0).result


def _column(rows: Operand, column: int) -> SSAValue:
    return SSAValue.get(
        reshaped(
            SSAValue.get(sliced(SSAValue.get(rows), {1: (column, 1, 1)})), (shape_of(rows)[0],)
        )
    )


def _keys(node: Node, values: SSAValue) -> tuple[Operand, int]:
    """Unsigned numbers in the order of the elements, and how many bits they have; NaNs are last."""
    dtype = dtype_of(values)
    bits = min(dtype.bits, 64) if not dtype.is_float else 64 if dtype.name == "f64" else 32
    if dtype.is_float and bits == 32:
        single = cast(values, dtypes.BY_NAME["f32"])
        order = gc.WhereOp(
            gc.IsNanOp(single), node.scalar((1 << 32) - 1, U32), bits_in_order(node, single)
        )
        return cast(order, U64), bits
    if not dtype.is_float:
        if dtype.name == "bool" or dtype.name.startswith("u"):
            return cast(values, U64), bits
        low = node.scalar(1 << (bits - 1), U64)
        return gc.AddOp(cast(cast(values, I64), U64), low), bits
    wide = gc.BitcastOp(gc.AddOp(values, node.scalar(0.0, dtype)), to=i64)
    negative = gc.CompareOp(wide, whole(node, 0), predicate="lt")
    upwards = gc.AddOp(cast(wide, U64), node.scalar(1 << 63, U64))
    order = gc.WhereOp(negative, cast(gc.SubOp(whole(node, -1), wide), U64), upwards)
    return gc.WhereOp(gc.IsNanOp(values), node.scalar((1 << 64) - 1, U64), order), bits


def _sorted(node: Node, rows: Operand) -> SSAValue:
    """The positions of rows in lexicographic order: stable sorts by the last column first."""
    _, columns = shape_of(rows)
    order: SSAValue | None = None
    for column in reversed(range(columns)):
        keys = _column(rows, column)
        if order is not None:
            keys = _taken(keys, order)
        numbers, bits = _keys(node, keys)
        here = gc.ArgSortOp(numbers, bits=bits).result
        order = here if order is None else _taken(order, here)
    assert order is not None, "rows have columns"
    return order


def _begins(node: Node, rows: SSAValue) -> Operand:
    """A mask of sorted rows that differ from the one before; the first one does."""
    length, columns = shape_of(rows)
    before, after = (sliced(rows, {0: (start, length - 1, 1)}) for start in (0, 1))
    differs: Operand = gc.CompareOp(before, after, predicate="ne")
    if dtype_of(rows).is_float:
        both = gc.AndOp(gc.IsNanOp(before), gc.IsNanOp(after))
        differs = gc.AndOp(differs, gc.NotOp(both))
    each = [_column(differs, column) for column in range(columns)]
    return gc.ConcatOp([node.literal(np.ones(1, bool)), reduce(_either, each)], axis=0)


def _either(one: SSAValue, other: SSAValue) -> SSAValue:
    return gc.OrOp(one, other).result


@dataclass(frozen=True)
class _Groups:
    """Groups of equals in sorted order, as far as there are some; then anything."""

    node: Node
    order: SSAValue
    """The positions of all elements in sorted order."""
    begins: Operand
    """A mask of the sorted elements that begin a group."""

    @cached_property
    def starts(self) -> SSAValue:
        """The places in sorted order at which groups begin."""
        return gc.PositionsOp(self.begins).result

    @cached_property
    def first(self) -> SSAValue:
        """The position of the first element of each group."""
        return _taken(self.order, self.starts)

    @cached_property
    def inverse(self) -> SSAValue:
        """The group of each element."""
        return self._put(_numbers(self.node, self.begins))

    @cached_property
    def counts(self) -> SSAValue:
        """The elements of each group: from where it begins to where the next one does, or all."""
        (length,) = shape_of(self.order)
        node, end = self.node, whole(self.node, length)
        later = sliced(self.starts, {0: (1, length - 1, 1)})
        is_one = gc.CompareOp(later, whole(node, 0), predicate="gt")
        after = gc.ConcatOp(
            [gc.WhereOp(is_one, later, end), node.literal(np.array([length]))], axis=0
        )
        return gc.SubOp(after, self.starts).result

    def _put(self, values: Operand) -> SSAValue:
        """Values in sorted order where their elements are."""
        (length,) = shape_of(self.order)
        start = self.node.literal(np.zeros(length, dtype_of(values).numpy))
        places = never_negative(self.order)
        return gc.ScatterOp(start, values, places, axis=0, reduction="none").result


@dataclass(frozen=True)
class _ByAppearance(_Groups):
    """Groups in the order in which their first elements appear."""

    groups: _Groups

    @cached_property
    def begun(self) -> SSAValue:
        """A mask of the elements that are the first of their groups."""
        return self._put(self.begins)

    @cached_property
    def first(self) -> SSAValue:
        return gc.PositionsOp(self.begun).result

    @cached_property
    def inverse(self) -> SSAValue:
        firsts = _taken(self.groups.first, self.groups.inverse)
        return _taken(_numbers(self.node, self.begun), firsts)

    @cached_property
    def counts(self) -> SSAValue:
        return _taken(self.groups.counts, _taken(self.groups.inverse, self.first))


def _numbers(node: Node, begins: Operand) -> SSAValue:
    """The number of the group that an element is in: of the groups that have begun, less one."""
    steps = cast(begins, dtypes.BY_NAME["i32"])
    (total,) = node.apply("CumSum", steps, node.literal(np.array(0)))
    return cast(gc.SubOp(cast(total, I64), whole(node, 1)), I64)
