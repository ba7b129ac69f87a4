"""Lowers MaxRoiPool: the largest elements of the bins of regions, along one axis and the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.operators.arithmetic import cast
from popgraph.operators.lookups import within
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, lowers
from popgraph.support import dtypes
from popgraph.support.dtypes import DType


@lowers("MaxRoiPool")
def max_roi_pool(node: Node) -> Lowered:
    """Bins in which there is no element give 0."""
    wide = dtypes.BY_NAME["f64" if node.dtype.name == "f64" else "f32"]
    regions = _Regions(node, wide)
    images = gc.GatherOp(node[0], regions.images(), axis=0).result
    rows, columns = regions.inside(0), regions.inside(1)
    of_rows = regions.largest(images, rows, 2)
    found = regions.largest(of_rows, columns, 3)
    some = gc.CompareOp(found, node.scalar(-math.inf), predicate="gt")
    return gc.WhereOp(some, found, node.scalar(0))


@dataclass(frozen=True)
class _Regions:
    """Rows of five numbers: an image, and the first and last element along width and height."""

    node: Node
    wide: DType

    def images(self) -> SSAValue:
        column = sliced(self.node[1], {1: (0, 1, 1)})
        flat = reshaped(SSAValue.get(column), (self.count,))
        places = cast(flat, dtypes.BY_NAME["i64"])
        return SSAValue.get(within(self.node, places, self.node.shape[0]))

    @property
    def count(self) -> int:
        return shape_of(self.node[1])[0]

    def number(self, value: float) -> SSAValue:
        return self.node.scalar(value, self.wide)

    def corner(self, column: int) -> Operand:
        """[regions, 1, 1]: rounded away from 0 at halves, as C's `round` does."""
        one = sliced(cast(self.node[1], self.wide), {1: (column, 1, 1)})
        scaled = gc.MulOp(
            reshaped(SSAValue.get(one), (self.count, 1, 1)),
            self.number(self.node.real("spatial_scale", 1.0)),
        )
        rounded = gc.FloorOp(gc.AddOp(gc.AbsOp(scaled), self.number(0.5)))
        return gc.MulOp(gc.SignOp(scaled), rounded)

    def inside(self, axis: int) -> Operand:
        """[regions, bins, size]: which elements along the height (0) or width (1) are in a bin."""
        bins = self.node.integers("pooled_shape")[axis]
        size = self.node.shape[2 + axis]
        first, last = self.corner(2 - axis), self.corner(4 - axis)
        span = gc.MaxOp(gc.AddOp(gc.SubOp(last, first), self.number(1)), self.number(1))
        length = gc.DivOp(span, self.number(bins))
        numbers = np.arange(bins, dtype=self.wide.numpy).reshape(1, bins, 1)
        low = gc.FloorOp(gc.MulOp(length, self.node.literal(numbers)))
        high = gc.CeilOp(gc.MulOp(length, self.node.literal(numbers + 1)))
        places = self.node.literal(np.arange(size, dtype=self.wide.numpy).reshape(1, 1, size))
        return gc.AndOp(
            gc.CompareOp(places, gc.AddOp(first, low), predicate="ge"),
            gc.CompareOp(places, gc.AddOp(first, high), predicate="lt"),
        )

    def largest(self, images: SSAValue, inside: Operand, axis: int) -> SSAValue:
        """The largest of the elements along an axis that are in each bin of it."""
        regions, channels, *space = shape_of(images)
        _, bins, size = shape_of(inside)
        other = space[3 - axis]
        if axis == 2:
            seen = reshaped(images, (regions, channels, 1, size, other))
            mask = reshaped(SSAValue.get(inside), (regions, 1, bins, size, 1))
        else:
            seen = reshaped(images, (regions, channels, other, 1, size))
            mask = reshaped(SSAValue.get(inside), (regions, 1, 1, bins, size))
        chosen = gc.WhereOp(mask, seen, self.node.scalar(-math.inf))
        return gc.ReduceMaxOp(chosen, axes=(3 if axis == 2 else 4,), keepdims=False).result
