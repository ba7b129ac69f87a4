"""Looks up rows of channels at places that are computed, times weights that are computed, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.operators.arithmetic import cast
from popgraph.operators.node import Node
from popgraph.support import dtypes
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class Tap:
    """Along one axis: a place inside of it, its weight, and whether it is inside at all."""

    place: Operand
    weight: Operand | None
    inside: Operand | None


def looked_up(
    node: Node,
    rows: SSAValue,
    start: Operand,
    space: Sequence[int],
    taps: Sequence[Tap],
) -> Operand:
    """The rows at one place for each axis, times their weights; zeros for those outside."""
    place = start
    for axis, tap in enumerate(taps):
        step = node.literal(np.array(prod(space[axis + 1 :]), np.int64))
        place = gc.AddOp(place, gc.MulOp(tap.place, step))
    found: Operand = gc.GatherOp(rows, cast(place, dtypes.BY_NAME["u64"]), axis=0)
    inside = [tap.inside for tap in taps if tap.inside is not None]
    if inside:
        condition = _beside_channels(reduce(gc.AndOp, inside))
        found = gc.WhereOp(condition, found, node.scalar(0, dtype_of(rows)))
    weights = [tap.weight for tap in taps if tap.weight is not None]
    if weights:
        found = gc.MulOp(found, _beside_channels(reduce(gc.MulOp, weights)))
    return found


def _beside_channels(value: Operand) -> Operand:
    """One number for each row."""
    return gc.ReshapeOp(value, shape=(*shape_of(value), 1))


def linear_taps(node: Node, at: SSAValue, size: int) -> list[Tap]:
    """The two elements around each place along an axis; there is nothing outside of it."""
    kind = dtype_of(at)
    one, low, high = (node.scalar(number, kind) for number in (1, 0, size - 1))
    first = gc.FloorOp(at)
    part = gc.SubOp(at, first)
    found = []
    for place, weight in ((first, gc.SubOp(one, part)), (gc.AddOp(first, one), part)):
        inside = gc.AndOp(
            gc.CompareOp(place, low, predicate="ge"), gc.CompareOp(place, high, predicate="le")
        )
        within = gc.MinOp(gc.MaxOp(place, low), high)
        found.append(Tap(cast(within, dtypes.BY_NAME["i64"]), weight, inside))
    return found
