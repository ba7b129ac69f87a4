"""
Lowers operators whose results have as many elements as the data say.

They give each result up to a bound, and its shape: see `partition.with_shapes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.custom import OWN
from popgraph.passes.onnx.to_graphcore.arithmetic import cast
from popgraph.passes.onnx.to_graphcore.indexing import never_negative, whole
from popgraph.passes.onnx.to_graphcore.movement import reshaped, sliced
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import Lowered, lowers
from popgraph.support import dtypes
from popgraph.support.errors import NeedsHostError
from popgraph.support.shapes import prod

I64 = dtypes.BY_NAME["i64"]
U32 = dtypes.BY_NAME["u32"]
"""Positions are divided in it: 64 bits take three times as long."""


def count_of(mask: Operand) -> Operand:
    """The number of true elements, a scalar."""
    axes = range(len(shape_of(mask)))
    return gc.ReduceSumOp(cast(mask, I64), axes=axes, keepdims=False)


def shape_with(node: Node, sizes: Sequence[int | Operand]) -> Operand:
    """A shape of which data decide some sizes."""
    parts: list[Operand] = [
        node.literal(np.array([size])) if isinstance(size, int) else gc.ReshapeOp(size, shape=(1,))
        for size in sizes
    ]
    return gc.ConcatOp(parts, axis=0) if len(parts) > 1 else parts[0]


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
    positions: Operand = gc.PositionsOp(flat)
    if len(shape) > 1:
        positions = _digits(node, positions)
    found = gc.ReshapeOp(positions, shape=(len(shape), count))
    return [found, shape_with(node, [len(shape), count_of(flat)])]


def _digits(node: Node, positions: Operand) -> Operand:
    """Positions in flat data as indices along each of its axes, a row for each axis."""
    shape = node.shape
    kind = U32 if prod(shape) < 1 << 32 else dtypes.BY_NAME["u64"]
    rest: Operand = cast(positions, kind)
    rows: list[Operand] = []
    for size in reversed(shape[1:]):
        by = node.scalar(max(1, size), kind)
        above = gc.DivOp(rest, by)
        rows.append(gc.SubOp(rest, gc.MulOp(above, by)))
        rest = above
    rows.append(rest)
    each = [gc.ReshapeOp(cast(row, I64), shape=(1, prod(shape))) for row in reversed(rows)]
    return gc.ConcatOp(each, axis=0)


@lowers("Compress", domain=OWN)
def compress(node: Node) -> Lowered:
    """The slices at the positions of the true elements of the condition."""
    data, shape, axis = node[0], node.shape, 0
    if node.has("axis"):
        axis = node.axis(node.integer("axis"))
    else:
        shape = (prod(shape),)
        data = SSAValue.get(reshaped(data, shape))
    length = min(shape_of(node[1])[0], shape[axis])
    condition = sliced(node[1], {0: (0, length, 1)})
    places = never_negative(gc.PositionsOp(condition))
    found = gc.GatherOp(data, places, axis=axis)
    sizes: list[int | Operand] = list(shape)
    sizes[axis] = count_of(condition)
    return [found, shape_with(node, sizes)]
