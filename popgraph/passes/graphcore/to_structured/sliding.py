"""Index expressions of sliding windows: padding, strides, dilation, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr

from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.graphcore.geometry import Geometry
from popgraph.passes.graphcore.to_structured.movement import assembled
from popgraph.support.shapes import Shape


def dimensions(*counts: int) -> list[list[AffineExpr]]:
    """The dimensions of a domain in groups of so many."""
    groups, first = [], 0
    for count in counts:
        groups.append([AffineExpr.dimension(first + number) for number in range(count)])
        first += count
    return groups


def padded(value: SSAValue, geometry: Geometry, sizes: Shape, fill: object = 0) -> SSAValue:
    """`value` with as much padding around its spatial axes as `sizes` windows read."""
    shape, rank = shape_of(value), len(geometry.kernel)
    space = shape[-rank:]
    rows = zip(geometry.low, space, geometry.reach(sizes), strict=True)
    wide = tuple(max(low + size, reach) for low, size, reach in rows)
    if wide == space:
        return value
    leading = shape[:-rank]
    offsets = [0] * len(leading) + list(geometry.low)
    return assembled([value], [offsets], [[1] * len(shape)], (*leading, *wide), fill)


def read_at(
    windows: Sequence[AffineExpr], inside: Sequence[AffineExpr], geometry: Geometry
) -> list[AffineExpr]:
    """The place in padded axes that window number `windows` sees `inside` its kernel."""
    rows = zip(windows, inside, geometry.strides, geometry.dilations, strict=True)
    return [window * stride + at * dilation for window, at, stride, dilation in rows]


def spread(value: SSAValue, geometry: Geometry, space: Shape) -> tuple[SSAValue, Shape]:
    """
    What was computed per window, apart by the strides, so that `space` can collect it.

    Element i of `space` meets, at kernel place q counted from the end, what stands at
    `i + q * dilation + shift`: the windows that cover i, and zeros. Gives the spread tensor and
    the shifts.
    """
    shape, rank = shape_of(value), len(geometry.kernel)
    offsets, wide, shifts = [], [], []
    rows = zip(shape[-rank:], space, geometry.low, geometry.extents, geometry.strides, strict=True)
    for count, size, low, extent, stride in rows:
        offset = max(0, extent - 1 - low)
        shift = offset + low - (extent - 1)
        end = offset + (count - 1) * stride + 1
        offsets.append(offset)
        shifts.append(shift)
        wide.append(max(end, size - 1 + extent + shift))
    if tuple(wide) == shape[-rank:]:
        return value, tuple(shifts)
    leading = shape[:-rank]
    start = [0] * len(leading)
    steps = [1] * len(leading) + list(geometry.strides)
    return (
        assembled([value], [[*start, *offsets]], [steps], (*leading, *wide)),
        tuple(shifts),
    )


@dataclass(frozen=True)
class Cover:
    """
    Which windows an element along an axis asks: those that may cover it, the last of them first.

    They are `count`; `before` and `after` are how many are missing at both ends. Where windows are
    few, it asks `every` one, in order.
    """

    stride: int
    low: int
    count: int
    span: int
    """One more than an element can be away from the start of such a window."""
    before: int = 0
    after: int = 0
    every: bool = False

    @property
    def reaches_back(self) -> bool:
        """Whether some windows begin behind elements that ask them."""
        return self.every and self.low < (self.count - 1) * self.stride

    def window(self, place: AffineExpr, number: AffineExpr) -> AffineExpr:
        """The window asked as number `number`, in a tensor that has what is missing."""
        if self.every:
            return number
        last = place + self.low
        return (last // self.stride if self.stride > 1 else last) - number + self.before


def covering(geometry: Geometry, space: Shape, windows: Shape) -> list[Cover]:
    """Which of so many windows elements of `space` ask, axis by axis."""
    rows = zip(geometry.extents, geometry.strides, geometry.low, space, windows, strict=True)
    covers = []
    for extent, stride, low, size, count in rows:
        most = -(-extent // stride)
        before = max(0, most - 1 - low // stride)
        after = max(0, (size - 1 + low) // stride + 1 - count)
        if count < most:
            covers.append(Cover(stride, low, count, max(extent, size + low), every=True))
        else:
            covers.append(Cover(stride, low, most, most * stride, before, after))
    return covers


def around(value: SSAValue, covers: Sequence[Cover]) -> SSAValue:
    """What was computed per window, with zeros for windows that are missing at both ends."""
    shape = shape_of(value)
    rows = zip(covers, shape[-len(covers) :], strict=True)
    wide = tuple(cover.before + count + cover.after for cover, count in rows)
    leading = shape[: -len(covers)]
    if wide == shape[len(leading) :]:
        return value
    offsets = [0] * len(leading) + [cover.before for cover in covers]
    return assembled([value], [offsets], [[1] * len(shape)], (*leading, *wide), 0)


def collect_at(
    places: Sequence[AffineExpr],
    inside: Sequence[AffineExpr],
    geometry: Geometry,
    shifts: Shape,
) -> list[AffineExpr]:
    """The place in a spread tensor that element `places` meets `inside` the reversed kernel."""
    rows = zip(places, inside, geometry.dilations, shifts, strict=True)
    return [place + at * dilation + shift for place, at, dilation, shift in rows]


def reversed_places(inside: Sequence[AffineExpr], kernel: Shape) -> list[AffineExpr]:
    """Places in a kernel, counted from its end."""
    return [AffineExpr.constant(size - 1) - at for at, size in zip(inside, kernel, strict=True)]
