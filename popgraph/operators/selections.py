"""
Operators with data-dependent result sizes: NonZero, Compress, NonMaxSuppression, Unique.

Compiled, each returns its result padded to a bound, and the result's shape: see
`partition.with_shapes`. Nodes that cannot be compiled are computed in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from xdsl.dialects.builtin import i32, i64
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.custom import OWN
from popgraph.dialects.onnx.host_values import holds_text, texts
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.lookups import i64_scalar, never_negative
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, computes, follows_data_sizes, lowers
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import NeedsHostError
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape, prod

I64 = dtypes.BY_NAME["i64"]
I32 = dtypes.BY_NAME["i32"]
F32 = dtypes.BY_NAME["f32"]
U64 = dtypes.BY_NAME["u64"]
U32 = dtypes.BY_NAME["u32"]
"""The type for dividing positions: division in 64 bits takes three times as long."""


def count_of(mask: Operand) -> Operand:
    """The number of true elements, as a scalar."""
    axes = range(len(shape_of(mask)))
    return gc.ReduceSumOp(cast(mask, I64), axes=axes, keepdims=False)


def shape_with(node: Node, sizes: Sequence[int | Operand]) -> Operand:
    """A shape tensor, with some sizes computed from data."""
    parts: list[Operand] = [
        node.literal(np.array([size])) if isinstance(size, int) else gc.ReshapeOp(size, shape=(1,))
        for size in sizes
    ]
    return joined(parts, axis=0)


@lowers("NonZero", domain=OWN)
def non_zero(node: Node) -> Lowered:
    """The indices of true elements: positions in the flat mask, split into one per axis."""
    shape, count = node.shape, prod(node.shape)
    if not shape or dtype_of(node[0]).name in ("c64", "c128"):
        raise NeedsHostError("NonZero of a scalar or of complex numbers is not compiled")
    mask = node[0]
    if node.dtype.name != "bool":
        mask = gc.CompareOp(mask, node.scalar(0), predicate="ne").result
    flat = reshaped(mask, (count,))
    rows = _digits(node, gc.CompressOp(flat), shape)
    found = joined([gc.ReshapeOp(row, shape=(1, count)) for row in rows], axis=0)
    return [found, shape_with(node, [len(shape), count_of(flat)])]


def joined(parts: Sequence[Operand], axis: int) -> Operand:
    return gc.ConcatOp(parts, axis=axis) if len(parts) > 1 else parts[0]


def _digits(node: Node, positions: Operand, shape: Shape) -> list[Operand]:
    """Flat positions in a tensor of this shape, as indices along each axis."""
    if len(shape) == 1:
        return [positions]
    kind = U32 if prod(shape) < 1 << 32 else U64
    rest: Operand = cast(positions, kind)
    found: list[Operand] = []
    for size in reversed(shape[1:]):
        by = node.scalar(max(1, size), kind)
        above = gc.DivOp(rest, by)
        found.append(cast(gc.SubOp(rest, gc.MulOp(above, by)), I64))
        rest = above
    return [cast(rest, I64), *reversed(found)]


@computes("NonZero")
def compute_non_zero(node: NodeView, x: Array) -> Array:
    """The indices; for a scalar [0, count], as ONNX says; onnxruntime returns one row."""
    if not x.ndim:
        return np.zeros((0, np.count_nonzero(x)), np.int64)
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@lowers("Compress", domain=OWN)
def compress(node: Node) -> Lowered:
    """The slices at the positions of the true elements of the condition."""
    data, shape, axis = node[0], node.shape, 0
    if node.has("axis"):
        axis = node.axis(node.integer("axis"))
    else:
        shape = (prod(shape),)
        data = reshaped(data, shape)
    condition = node[1]
    if shape_of(condition)[0] > shape[axis]:
        raise NeedsHostError("a condition that is longer than the axis is not compiled")
    found: Operand
    if node.lowering.training:
        places = never_negative(gc.CompressOp(condition))
        found = gc.GatherOp(data, places, axis=axis)
    else:
        found = gc.CompressOp(condition, data, axis=axis)
    sizes: list[int | Operand] = list(shape)
    sizes[axis] = count_of(condition)
    return [found, shape_with(node, sizes)]


@computes("Compress")
def compute_compress(node: NodeView, x: Array, condition: Array) -> Array:
    axis = node.attribute("axis")
    flat = x.reshape(-1) if axis is None else x
    places = np.flatnonzero(condition)
    size = flat.shape[axis or 0]
    if places.size and places[-1] >= size:
        raise node.fail(
            f"Compress: the condition selects element {places[-1]} of {size}",
            "make the condition at most as long as the axis",
        )
    return np.take(flat, places, axis or 0)


@lowers("NonMaxSuppression", domain=OWN)
def non_max_suppression(node: Node) -> Lowered:
    """Selects boxes per batch and class that overlap no better one beyond the threshold."""
    batches, rows, length = shape_of(node[1])
    limit = node.optional(2)
    known = None if limit is None else node.lowering.array(limit)
    most = 0 if limit is None else length if known is None else int(known.reshape(())[()])
    count = max(0, min(most, length))
    if limit is None or 0 in (count, batches, rows):
        return [node.literal(np.zeros((0, 3), np.int64)), node.literal(np.array([0, 3]))]
    threshold = node.scalar(0, F32) if node.optional(3) is None else node[3]
    kept = gc.SuppressOp(
        node[0],
        _keys(node),
        reshaped(limit, ()),
        reshaped(threshold, ()),
        count=count,
        centered=bool(node.integer("center_point_box")),
    )
    total = batches * rows * count
    flat = gc.ReshapeOp(kept, shape=(total,))
    is_kept = gc.CompareOp(flat, i64_scalar(node, 0), predicate="ge")
    positions = gc.CompressOp(is_kept)
    boxes = gc.GatherOp(flat, never_negative(positions), axis=0)
    batch, row, _ = _digits(node, positions, (batches, rows, count))
    columns = [gc.ReshapeOp(column, shape=(total, 1)) for column in (batch, row, boxes)]
    return [gc.ConcatOp(columns, axis=1), shape_with(node, [count_of(is_kept), 3])]


def bits_in_order(node: Node, floats: SSAValue) -> Operand:
    """
    Order-preserving bits of f32 as u32.

    -0 equals 0, infinities are not 0, and the order of NaNs is unspecified.
    """
    bits = gc.BitcastOp(gc.AddOp(floats, node.scalar(0, F32)), to=i32).result
    negative = gc.CompareOp(bits, node.scalar(0, I32), predicate="lt")
    upwards = gc.XorOp(bits, node.scalar(-(1 << 31), I32))
    return cast(gc.WhereOp(negative, gc.NotOp(bits), upwards), U32)


def _keys(node: Node) -> Operand:
    """
    Sort keys of the scores; 0 for boxes that are not candidates.

    A NaN comes last; with a threshold it is not a candidate.
    """
    scores = node[1]
    order = gc.WhereOp(gc.IsNanOp(scores), node.scalar(1, U32), bits_in_order(node, scores))
    if node.optional(4) is None:
        return order
    better = gc.CompareOp(scores, reshaped(node[4], ()), predicate="gt")
    return gc.WhereOp(better, order, node.scalar(0, U32))


@computes("NonMaxSuppression")
def compute_non_max_suppression(
    node: NodeView,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """
    Selects boxes by descending score; drops boxes that overlap a selected one too much.

    Ties keep the order of boxes. A score must exceed the threshold, as in onnxruntime;
    ONNX's reference keeps equal ones, too.
    """
    count = 0 if most is None else int(most.reshape(()))
    limit = np.float32(0 if overlap is None else overlap.reshape(()))
    low, high = _corners(boxes, centered=bool(node.attribute("center_point_box")))
    rows: list[tuple[int, int, int]] = []
    for batch, label in np.ndindex(*scores.shape[:2]):
        row = scores[batch, label]
        order = np.argsort(-row, kind="stable")
        if least is not None:
            order = order[row[order] > least.reshape(())]
        kept: list[int] = []
        while len(order) and len(kept) < count:
            best, order = int(order[0]), order[1:]
            kept.append(best)
            shared = _overlaps(low[batch], high[batch], best, order)
            order = order[~(shared > limit)]
        rows += [(batch, label, box) for box in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def _corners(boxes: Array, *, centered: bool) -> tuple[Array, Array]:
    """The lowest and highest corner of each box, from any diagonal."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centered:
        first, second = first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)


def _overlaps(low: Array, high: Array, box: int, others: Array) -> Array:
    """Intersection over union; 0 where boxes have no area."""
    areas = np.prod(high - low, axis=-1)
    sides = np.minimum(high[box], high[others]) - np.maximum(low[box], low[others])
    shared = np.prod(np.maximum(sides, 0), axis=-1)
    union = areas[box] + areas[others] - shared
    return np.where(union > 0, shared / union, 0)


# Unique


MOST_COLUMNS = 16
"""Larger slices are compared in Python, since each element of a slice costs a sort."""


@lowers("Unique", domain=OWN)
def unique(node: Node) -> Lowered:
    """
    The first of each group of equal neighbors in sorted order.

    NaNs are equal and come last. The sort is stable, so the first of a group has the lowest
    position.
    """
    shape, axis, rows = _rows(node)
    length = shape[axis]
    data = node[0] if node.has("axis") else reshaped(node[0], shape)
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
    """The rows at these indices."""
    return gc.GatherOp(values, never_negative(places), axis=0).result


def _column(rows: Operand, column: int) -> SSAValue:
    return reshaped(sliced(rows, {1: (column, 1, 1)}), (shape_of(rows)[0],))


def _sort_keys(node: Node, values: SSAValue) -> tuple[Operand, int]:
    """Order-preserving u64 keys of the elements, and their number of bits; NaNs are last."""
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
    negative = gc.CompareOp(wide, i64_scalar(node, 0), predicate="lt")
    upwards = gc.AddOp(cast(wide, U64), node.scalar(1 << 63, U64))
    order = gc.WhereOp(negative, cast(gc.SubOp(i64_scalar(node, -1), wide), U64), upwards)
    return gc.WhereOp(gc.IsNanOp(values), node.scalar((1 << 64) - 1, U64), order), bits


def _sorted(node: Node, rows: Operand) -> SSAValue:
    """The positions of rows in lexicographic order: stable sorts by the last column first."""
    _, columns = shape_of(rows)
    order: SSAValue | None = None
    for column in reversed(range(columns)):
        keys = _column(rows, column)
        if order is not None:
            keys = _taken(keys, order)
        numbers, bits = _sort_keys(node, keys)
        here = gc.ArgSortOp(numbers, bits=bits).result
        order = here if order is None else _taken(order, here)
    assert order is not None, "rows have columns"
    return order


def _begins(node: Node, rows: SSAValue) -> Operand:
    """The mask of sorted rows that differ from the row before; True for the first row."""
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
    """Groups of equal elements in sorted order; entries after the last group are arbitrary."""

    node: Node
    order: SSAValue
    """The positions of all elements in sorted order."""
    begins: Operand
    """The mask of sorted elements that begin a group."""

    @cached_property
    def starts(self) -> SSAValue:
        """The indices in sorted order at which groups begin."""
        return gc.CompressOp(self.begins).result

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
        """The size of each group: the start of the next group, or the end, minus its start."""
        (length,) = shape_of(self.order)
        node, end = self.node, i64_scalar(self.node, length)
        later = sliced(self.starts, {0: (1, length - 1, 1)})
        is_one = gc.CompareOp(later, i64_scalar(node, 0), predicate="gt")
        after = gc.ConcatOp(
            [gc.WhereOp(is_one, later, end), node.literal(np.array([length]))], axis=0
        )
        return gc.SubOp(after, self.starts).result

    def _put(self, values: Operand) -> SSAValue:
        """Scatters values from sorted order back to the original order."""
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
        """The mask of elements that are the first of their group."""
        return self._put(self.begins)

    @cached_property
    def first(self) -> SSAValue:
        return gc.CompressOp(self.begun).result

    @cached_property
    def inverse(self) -> SSAValue:
        firsts = _taken(self.groups.first, self.groups.inverse)
        return _taken(_numbers(self.node, self.begun), firsts)

    @cached_property
    def counts(self) -> SSAValue:
        return _taken(self.groups.counts, _taken(self.groups.inverse, self.first))


def _numbers(node: Node, begins: Operand) -> SSAValue:
    """The index of each element's group: the prefix sum of group starts, minus one."""
    steps = cast(begins, dtypes.BY_NAME["i32"])
    (total,) = node.apply("CumSum", steps, node.literal(np.array(0)))
    return cast(gc.SubOp(cast(total, I64), i64_scalar(node, 1)), I64)


@computes("Unique")
def compute_unique(node: NodeView, x: Array) -> tuple[Array, ...]:
    """
    Unique elements or slices along `axis`, their first indices, the inverse, and their counts.

    NaNs are equal, as in ONNX's reference; onnxruntime sorts them as the least number.
    """
    axis, words = node.attribute("axis"), None
    if holds_text(x):  # NumPy cannot sort slices of objects, so strings become sorted ranks.
        words, places = np.unique(texts(x), return_inverse=True)
        x = places.reshape(x.shape)
    found = np.unique(x, True, True, True, axis)
    values, first, back, counts = found[0], found[1], found[2].reshape(-1), found[3]
    if not node.attribute("sorted"):
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        back = np.argsort(order)[back]
    if words is not None:
        values = words[values]
    return values, *(numbers.astype(np.int64) for numbers in (first, back, counts))


follows_data_sizes("NonZero Compress Unique")
