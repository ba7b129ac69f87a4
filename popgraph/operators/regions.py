"""
RoiAlign and MaxRoiPool: pooling of regions of images in bins.

RoiAlign gathers the elements around samples; if the number of samples adapts to the region, it
weights all elements of an axis instead. MaxRoiPool takes the maximum along one axis after the
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import NamedTuple

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import YieldOp
from popgraph.dialects.program.control_signatures import NUMBER, row_type
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.complaints import of_rank, of_shape, positive, shown
from popgraph.operators.lookups import Tap, from_start, looked_up, within
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Bounds, Lowered, bounds, chooses, lowers, requires
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.memo import cached_property


@dataclass(frozen=True)
class _Regions:
    """The regions of a node, in the element type of the computation."""

    node: Node
    kind: DType

    def number(self, value: float) -> SSAValue:
        return self.node.scalar(value, self.kind)

    def literal(self, numbers: Array) -> SSAValue:
        return self.node.literal(numbers.astype(self.kind.numpy))

    @property
    def count(self) -> int:
        return shape_of(self.node[1])[0]

    def scaled(self, column: int) -> Operand:
        """A column of the regions, scaled to elements of the image, [regions, 1, 1]."""
        given = sliced(cast(self.node[1], self.kind), {1: (column, 1, 1)})
        one = reshaped(given, (self.count, 1, 1))
        return gc.MulOp(one, self.number(self.node.real("spatial_scale", 1.0)))


# MaxRoiPool


@requires("MaxRoiPool")
def require_max_roi_pool(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 4)
    regions, bins = node.shape_of(1), node.given_integers("pooled_shape") or []
    if regions:
        yield from of_shape(node, 1, regions[0], 5)
    else:
        yield from of_rank(node, 1, 2)
    if len(bins) != 2 or min(bins) < 1:
        yield TypeConflict(f"`pooled_shape` is {list(bins)}", "give a height and a width")


@lowers("MaxRoiPool")
def max_roi_pool(node: Node) -> Lowered:
    """The maximum of each bin; 0 for empty bins."""
    regions = _Bins(node, computing(node))
    images = gc.GatherOp(node[0], regions.images(), axis=0).result
    rows, columns = regions.inside(0), regions.inside(1)
    found = regions.largest(regions.largest(images, rows, 2), columns, 3)
    some = gc.CompareOp(found, node.scalar(-math.inf), predicate="gt")
    return gc.WhereOp(some, found, node.scalar(0))


class _Bins(_Regions):
    """Regions of MaxRoiPool, [image, x1, y1, x2, y2], with inclusive corners."""

    def images(self) -> SSAValue:
        column = reshaped(sliced(self.node[1], {1: (0, 1, 1)}), (self.count,))
        places = cast(column, dtypes.BY_NAME["i64"])
        return SSAValue.get(within(self.node, places, self.node.shape[0]))

    def corner(self, column: int) -> Operand:
        """A corner, rounded half away from 0, like C's `round`."""
        scaled = self.scaled(column)
        rounded = gc.FloorOp(gc.AddOp(gc.AbsOp(scaled), self.number(0.5)))
        return gc.MulOp(gc.SignOp(scaled), rounded)

    def inside(self, axis: int) -> Operand:
        """The mask of a bin's elements along the height (0) or width (1), [regions, bins, size]."""
        bins = self.node.integers("pooled_shape")[axis]
        size = self.node.shape[2 + axis]
        first, last = self.corner(2 - axis), self.corner(4 - axis)
        span = gc.MaxOp(gc.AddOp(gc.SubOp(last, first), self.number(1)), self.number(1))
        length = gc.DivOp(span, self.number(bins))
        numbers = np.arange(bins).reshape(1, bins, 1)
        low = gc.FloorOp(gc.MulOp(length, self.literal(numbers)))
        high = gc.CeilOp(gc.MulOp(length, self.literal(numbers + 1)))
        places = self.literal(np.arange(size).reshape(1, 1, size))
        return gc.AndOp(
            gc.CompareOp(places, gc.AddOp(first, low), predicate="ge"),
            gc.CompareOp(places, gc.AddOp(first, high), predicate="lt"),
        )

    def largest(self, images: SSAValue, inside: Operand, axis: int) -> SSAValue:
        """The maximum over each bin's elements along an axis."""
        regions, channels, *space = shape_of(images)
        _, bins, size = shape_of(inside)
        if axis == 2:
            seen, mask = (1, size, space[1]), (1, bins, size, 1)
        else:
            seen, mask = (space[0], 1, size), (1, 1, bins, size)
        values = reshaped(images, (regions, channels, *seen))
        chosen = reshaped(inside, (regions, *mask))
        kept = gc.WhereOp(chosen, values, self.node.scalar(-math.inf))
        return gc.ReduceMaxOp(kept, axes=(axis + 1,), keepdims=False).result


# RoiAlign

CANDIDATES = 6
"""
Samples of a bin that may touch an element, if the number of samples adapts to the bin.

Their distance is more than half an element, so at most 4 are within one element of any.
One more on either side allows for rounding of the first candidate's position.
"""

chooses(
    "RoiAlign",
    coordinate_transformation_mode=("half_pixel", "output_half_pixel"),
    mode=("avg", "max"),
)


@requires("RoiAlign")
def require_roi_align(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 4)
    yield from of_rank(node, 1, 2)
    x, regions = node.shape_of(0), node.shape_of(1)
    if regions is not None:
        yield from of_shape(node, 1, regions[0], 4)
        yield from of_shape(node, 2, regions[0])
    yield from positive(node, "output_height", "output_width")
    if node.integer("sampling_ratio") < 0:
        yield TypeConflict("`sampling_ratio` is less than 0", "use 0 (adaptive) or more")
    scale = node.real("spatial_scale", 1.0)
    if not 0 < scale < math.inf:
        yield TypeConflict(f"`spatial_scale` is {scale:g}", "it must be larger than 0")
    if x is not None and regions is not None and 0 in (x[0], *x[2:]) and regions[0] != 0:
        yield TypeConflict(f"there is nothing to sample in {shown(x)}", "use larger images")


@bounds("RoiAlign")
def images(node: NodeView) -> Iterator[Bounds]:
    x = node.static_shape_of(0)
    if x:
        yield Bounds(2, "image", (0,), (x[0] - 1,))


@lowers("RoiAlign")
def roi_align(node: Node) -> Lowered:
    ratio, count = node.integer("sampling_ratio"), shape_of(node[1])[0]
    bins = node.integer("output_height", 1), node.integer("output_width", 1)
    if 0 in (count, *node.shape):
        return gc.BroadcastOp(node.scalar(0), shape=(count, node.shape[1], *bins))
    regions = _Aligned(node, computing(node))
    return cast(regions.looked_up(ratio) if ratio else regions.weighed(), node.dtype)


class _Part(NamedTuple):
    """Regions along one axis: their starts and the lengths of their bins, [regions, 1, 1]."""

    start: Operand
    length: Operand
    bins: int
    size: int
    """The size of the image."""


@dataclass(frozen=True)
class _Aligned(_Regions):
    """Regions of RoiAlign, [x1, y1, x2, y2]."""

    @property
    def is_mean(self) -> bool:
        return self.node.text("mode", "avg") == "avg"

    @cached_property
    def images(self) -> SSAValue:
        """The index of the image of each region."""
        return SSAValue.get(from_start(self.node, 2, self.node.shape[0]))

    def part(self, axis: int) -> _Part:
        """The regions along the height (0) or the width (1)."""
        first, last = (self.corner(column) for column in (1 - axis, 3 - axis))
        extent: Operand = gc.SubOp(last, first)
        bins = self.node.integer(("output_height", "output_width")[axis], 1)
        if not self.is_shifted:  # regions are one element long at least
            extent = gc.MaxOp(extent, self.number(1))
        length = gc.DivOp(extent, self.number(bins))
        return _Part(first, length, bins, self.node.shape[2 + axis])

    @property
    def is_shifted(self) -> bool:
        """Whether element i has its center at coordinate i + 0.5."""
        default = "half_pixel" if self.node.version >= 16 else "output_half_pixel"
        return self.node.text("coordinate_transformation_mode", default) == "half_pixel"

    def corner(self, column: int) -> Operand:
        scaled = self.scaled(column)
        return gc.SubOp(scaled, self.number(0.5)) if self.is_shifted else scaled

    def bin_starts(self, part: _Part) -> Operand:
        """[regions, bins, 1]"""
        numbers = self.literal(np.arange(part.bins).reshape(1, -1, 1))
        return gc.AddOp(part.start, gc.MulOp(part.length, numbers))

    def inside(self, at: Operand, size: int) -> Operand:
        """Whether positions are in [-1, size]; those outside the image read its edge."""
        return gc.AndOp(
            gc.CompareOp(at, self.number(-1), predicate="ge"),
            gc.CompareOp(at, self.number(size), predicate="le"),
        )

    def around(self, at: Operand, size: int) -> tuple[Operand, Operand, Operand]:
        """The elements before and after each position, and its distance from the first."""
        last = self.number(size - 1)
        within = gc.MinOp(gc.MaxOp(at, self.number(0)), last)
        low = gc.FloorOp(within)
        return low, gc.MinOp(gc.AddOp(low, self.number(1)), last), gc.SubOp(within, low)

    # A fixed number of samples per bin: rows of channels are gathered

    def looked_up(self, ratio: int) -> SSAValue:
        batch, channels, height, width = self.node.shape
        parts = [self.part(axis) for axis in (0, 1)]
        taps = [self.taps(part, ratio, axis) for axis, part in enumerate(parts)]
        table = gc.TransposeOp(self.node[0], perm=[0, 2, 3, 1])
        rows = cast(reshaped(table, (batch * height * width, channels)), self.kind)
        size = self.node.literal(np.array(height * width, np.int64))
        start = gc.MulOp(reshaped(self.images, (self.count, 1, 1)), size)
        terms = [
            looked_up(self.node, rows, start, (height, width), some) for some in product(*taps)
        ]
        total = reduce(gc.AddOp if self.is_mean else gc.MaxOp, terms)
        bins = [one for part in parts for one in (part.bins, ratio)]
        samples = reshaped(total, (self.count, *bins, channels))
        join = gc.ReduceMeanOp if self.is_mean else gc.ReduceMaxOp
        joined = join(samples, axes=(2, 4), keepdims=False)
        return gc.TransposeOp(joined, perm=[0, 3, 1, 2]).result

    def taps(self, part: _Part, ratio: int, axis: int) -> list[Tap]:
        """The two elements around each sample, [regions, samples, 1] or [regions, 1, samples]."""
        middles = self.literal(((np.arange(ratio) + 0.5) / ratio).reshape(1, 1, -1))
        offsets = gc.MulOp(part.length, middles)
        samples = part.bins * ratio
        shape = (self.count, samples, 1) if axis == 0 else (self.count, 1, samples)
        at = reshaped(gc.AddOp(self.bin_starts(part), offsets), shape)
        low, high, rest = self.around(at, part.size)
        inside = self.inside(at, part.size)
        weights = gc.SubOp(self.number(1), rest), rest
        return [
            Tap(cast(place, dtypes.BY_NAME["i64"]), weight, inside)
            for place, weight in zip((low, high), weights, strict=True)
        ]

    # An adaptive number of samples, ceil(bin length): all elements of an axis are weighted

    def weighed(self) -> SSAValue:
        """
        A loop over regions that weights the rows and then the columns of an image.

        The weight of an element in a bin is the product of a weight per axis, so no tensor has
        the data-dependent number of samples as its size.
        """
        weights = [weight for axis in (0, 1) for weight in self.weights(self.part(axis))]
        block = Block(
            arg_types=[NUMBER, row_type(self.images), *map(row_type, weights), self.node[0].type]
        )
        with ImplicitBuilder(block):
            _, number, *rows, images = block.args
            image = cast(gc.GatherOp(images, number, axis=0), self.kind)
            step = self.mean_of if self.is_mean else self.largest_of
            YieldOp([SSAValue.get(step(image, rows))])
        loop = gc.LoopOp(
            self.count,
            Region(block),
            scanned=[self.images, *weights],
            captured=[self.node[0]],
        )
        return loop.results[0]

    def mean_of(self, image: SSAValue, rows: Sequence[SSAValue]) -> Operand:
        """high @ (image @ wide^T), of [bins, height], [channels, height, width], [bins, width]."""
        high, wide = rows
        return gc.MatMulOp(
            reshaped(high, (1, *shape_of(high))),
            gc.MatMulOp(image, gc.TransposeOp(wide, perm=[1, 0])),
        )

    def largest_of(self, image: SSAValue, rows: Sequence[SSAValue]) -> Operand:
        """
        The maximum of weight * weight * element over a bin, as ONNX defines it.

        Weights are >= 0, so the maximum along one axis suffices as input of the other.
        """
        high, wide = _Extremes(*rows[:3]), _Extremes(*rows[3:])
        channels, height, width = shape_of(image)
        (high_bins, _), (wide_bins, _) = shape_of(high.most), shape_of(wide.most)
        across = self.largest_along(
            gc.ReshapeOp(image, shape=(channels, height, 1, width)),
            [gc.ReshapeOp(one, shape=(1, 1, wide_bins, width)) for one in wide[:2]],
        )
        transposed = gc.TransposeOp(across, perm=[0, 2, 1])
        found = self.largest_along(
            gc.ReshapeOp(transposed, shape=(channels, 1, wide_bins, height)),
            [gc.ReshapeOp(one, shape=(1, high_bins, 1, height)) for one in high[:2]],
        )
        outside = gc.OrOp(
            gc.ReshapeOp(high.outside, shape=(1, high_bins, 1)),
            gc.ReshapeOp(wide.outside, shape=(1, 1, wide_bins)),
        )
        return gc.WhereOp(outside, gc.MaxOp(found, self.number(0)), found)

    def largest_along(self, values: Operand, extremes: list[Operand]) -> Operand:
        """The weighted maximum along the last axis; -inf if no sample touches any element."""
        most, least = extremes
        zero, none = self.number(0), self.number(-np.inf)
        above = gc.CompareOp(values, zero, predicate="ge")
        weighed = gc.MulOp(values, gc.WhereOp(above, most, least))
        missing = gc.OrOp(
            gc.CompareOp(most, zero, predicate="lt"), gc.CompareOp(values, none, predicate="eq")
        )
        return gc.ReduceMaxOp(gc.WhereOp(missing, none, weighed), axes=(3,), keepdims=False)

    def weights(self, part: _Part) -> list[SSAValue]:
        """The weights of all elements of an axis in all bins, [regions, bins, elements]."""
        samples = _Samples(self, part)
        if self.is_mean:
            return [SSAValue.get(samples.means())]
        return [SSAValue.get(one) for one in samples.extremes()]


class _Extremes(NamedTuple):
    """The largest and least weight of elements in bins; `most` is -1 if no sample touches it."""

    most: Operand
    least: Operand
    outside: Operand
    """Whether a bin has a sample outside the image, or none at all."""


@dataclass(frozen=True)
class _Samples:
    """The ceil(length) samples of each bin, along one axis."""

    regions: _Aligned
    part: _Part

    def number(self, value: float) -> SSAValue:
        return self.regions.number(value)

    @cached_property
    def count(self) -> Operand:
        return gc.CeilOp(self.part.length)

    @cached_property
    def some(self) -> Operand:
        return gc.CompareOp(self.count, self.number(1), predicate="ge")

    @cached_property
    def divisor(self) -> Operand:
        return gc.MaxOp(self.count, self.number(1))

    @cached_property
    def step(self) -> Operand:
        """The distance between samples; 1 without samples."""
        return gc.WhereOp(self.some, gc.DivOp(self.part.length, self.divisor), self.number(1))

    @cached_property
    def starts(self) -> Operand:
        return self.regions.bin_starts(self.part)

    def sample(self, number: Operand) -> Operand:
        middle = gc.AddOp(number, self.number(0.5))
        return gc.AddOp(_unsqueezed(self.starts), gc.MulOp(middle, _unsqueezed(self.step)))

    @cached_property
    def elements(self) -> SSAValue:
        return self.regions.literal(np.arange(self.part.size).reshape(1, 1, -1, 1))

    @cached_property
    def near(self) -> tuple[list[Operand], list[Operand]]:
        """
        Whether candidates touch an element, and their weights.

        One [regions, bins, elements, candidates] each for the element before a sample and the
        one after it.
        """
        far = gc.SubOp(gc.SubOp(self.elements, self.number(1)), _unsqueezed(self.starts))
        first = gc.CeilOp(gc.SubOp(gc.DivOp(far, _unsqueezed(self.step)), self.number(0.5)))
        begin = gc.MaxOp(first, self.number(1))
        number = gc.AddOp(begin, self.regions.literal(np.arange(CANDIDATES) - 1))
        at, size = self.sample(number), self.part.size
        valid = gc.AndOp(
            gc.CompareOp(number, _unsqueezed(self.count), predicate="lt"),
            self.regions.inside(at, size),
        )
        low, high, rest = self.regions.around(at, size)
        touched: list[Operand] = [
            gc.AndOp(valid, gc.CompareOp(place, self.elements, predicate="eq"))
            for place in (low, high)
        ]
        return touched, [gc.SubOp(self.number(1), rest), rest]

    def means(self) -> Operand:
        pairs = zip(*self.near, strict=True)
        parts = [gc.WhereOp(touched, weight, self.number(0)) for touched, weight in pairs]
        total = gc.ReduceSumOp(gc.AddOp(*parts), axes=(3,), keepdims=False)
        return gc.DivOp(total, self.divisor)

    def extremes(self) -> _Extremes:
        pairs = list(zip(*self.near, strict=True))
        none, more = self.number(-1), self.number(2)
        most = [gc.WhereOp(touched, weight, none) for touched, weight in pairs]
        least = [gc.WhereOp(touched, weight, more) for touched, weight in pairs]
        return _Extremes(
            gc.ReduceMaxOp(gc.MaxOp(*most), axes=(3,), keepdims=False),
            gc.ReduceMinOp(gc.MinOp(*least), axes=(3,), keepdims=False),
            self.outside(),
        )

    def outside(self) -> Operand:
        """Whether the first sample is before the image, the last one after it, or none exists."""
        first, last = (
            gc.AddOp(self.starts, gc.MulOp(number, self.step))
            for number in (self.number(0.5), gc.SubOp(self.count, self.number(0.5)))
        )
        before = gc.CompareOp(first, self.number(-1), predicate="lt")
        after = gc.CompareOp(last, self.number(self.part.size), predicate="gt")
        return gc.OrOp(gc.OrOp(before, after), gc.NotOp(self.some))


def _unsqueezed(value: Operand) -> Operand:
    """A value with a new last axis, for candidates."""
    return gc.ReshapeOp(value, shape=(*shape_of(value), 1))
