"""
Lowers operators whose results have as many elements as the data say.

They give each result up to a bound, and its shape: see `partition.with_shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.custom import OWN
from popgraph.passes.onnx.to_graphcore.arithmetic import cast
from popgraph.passes.onnx.to_graphcore.indexing import never_negative, whole
from popgraph.passes.onnx.to_graphcore.movement import reshaped
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import Lowered, lowers
from popgraph.support import dtypes
from popgraph.support.errors import NeedsHostError
from popgraph.support.shapes import Shape, prod

I64 = dtypes.BY_NAME["i64"]
I32 = dtypes.BY_NAME["i32"]
F32 = dtypes.BY_NAME["f32"]
U64 = dtypes.BY_NAME["u64"]
U32 = dtypes.BY_NAME["u32"]
"""Positions are divided in it: 64 bits take three times as long."""


def count_of(mask: Operand) -> Operand:
    """The number of true elements, a scalar."""
    axes = range(len(shape_of(mask)))
    return gc.ReduceSumOp(cast(mask, I64), axes=axes, keepdims=False)


def shape_with(node: Node, sizes: Sequence[int | Operand]) -> Operand:
    """A shape with some sizes computed from data."""
    parts: list[Operand] = [
        node.literal(np.array([size])) if isinstance(size, int) else gc.ReshapeOp(size, shape=(1,))
        for size in sizes
    ]
    return joined(parts, axis=0)


@lowers("NonZero", domain=OWN)
def non_zero(node: Node) -> Lowered:
    """The positions of the true elements of the flat mask, as digits of the shape."""
    shape, count = node.shape, prod(node.shape)
    if not shape or dtype_of(node[0]).name in ("c64", "c128"):
        raise NeedsHostError("NonZero of a scalar or of complex numbers is not compiled")
    mask = node[0]
    if node.dtype.name != "bool":
        mask = gc.CompareOp(mask, node.scalar(0), predicate="ne").result
    flat = reshaped(mask, (count,))
    rows = _digits(node, gc.PositionsOp(flat), shape)
    found = joined([gc.ReshapeOp(row, shape=(1, count)) for row in rows], axis=0)
    return [found, shape_with(node, [len(shape), count_of(flat)])]


def joined(parts: Sequence[Operand], axis: int) -> Operand:
    return gc.ConcatOp(parts, axis=axis) if len(parts) > 1 else parts[0]


def _digits(node: Node, positions: Operand, shape: Shape) -> list[Operand]:
    """Positions in flat data of this shape as indices along each of its axes."""
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


@lowers("Compress", domain=OWN)
def compress(node: Node) -> Lowered:
    """The slices at the positions of the true elements of the condition."""
    data, shape, axis = node[0], node.shape, 0
    if node.has("axis"):
        axis = node.axis(node.integer("axis"))
    else:
        shape = (prod(shape),)
        data = SSAValue.get(reshaped(data, shape))
    condition = node[1]
    if shape_of(condition)[0] > shape[axis]:
        raise NeedsHostError("a condition that is longer than the axis is not compiled")
    places = never_negative(gc.PositionsOp(condition))
    found = gc.GatherOp(data, places, axis=axis)
    sizes: list[int | Operand] = list(shape)
    sizes[axis] = count_of(condition)
    return [found, shape_with(node, sizes)]


@lowers("NonMaxSuppression", domain=OWN)
def non_max_suppression(node: Node) -> Lowered:
    """The boxes of each class and batch that no better one overlaps by much."""
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
        reshaped(SSAValue.get(threshold), ()),
        count=count,
        centered=bool(node.integer("center_point_box")),
    )
    total = batches * rows * count
    flat = gc.ReshapeOp(kept, shape=(total,))
    is_kept = gc.CompareOp(flat, whole(node, 0), predicate="ge")
    positions = gc.PositionsOp(is_kept)
    boxes = gc.GatherOp(flat, never_negative(positions), axis=0)
    batch, row, _ = _digits(node, positions, (batches, rows, count))
    columns = [gc.ReshapeOp(column, shape=(total, 1)) for column in (batch, row, boxes)]
    return [gc.ConcatOp(columns, axis=1), shape_with(node, [count_of(is_kept), 3])]


def bits_in_order(node: Node, floats: SSAValue) -> Operand:
    """f32 as u32 in the order of the numbers, -0 as 0; NaNs are anywhere, infinities are not 0."""
    bits = gc.BitcastOp(gc.AddOp(floats, node.scalar(0, F32)), to=i32).result
    negative = gc.CompareOp(bits, node.scalar(0, I32), predicate="lt")
    upwards = gc.XorOp(bits, node.scalar(-(1 << 31), I32))
    return cast(gc.WhereOp(negative, gc.NotOp(bits), upwards), U32)


def _keys(node: Node) -> Operand:
    """
    The order of scores as integers; 0 for what is no candidate.

    A NaN comes last, or is no candidate where there is a threshold.
    """
    scores = node[1]
    order = gc.WhereOp(gc.IsNanOp(scores), node.scalar(1, U32), bits_in_order(node, scores))
    if node.optional(4) is None:
        return order
    better = gc.CompareOp(scores, reshaped(node[4], ()), predicate="gt")
    return gc.WhereOp(better, order, node.scalar(0, U32))
