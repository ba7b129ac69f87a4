"""Index expressions of sliding windows: padding, strides, dilation, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr

from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.graphcore.geometry import Geometry
from popgraph.passes.graphcore.to_structured.lower_movement import assembled
from popgraph.support.shapes import Shape


def dimensions(*counts: int) -> list[list[AffineExpr]]:
    """The dimensions of a domain, in groups of these sizes."""
    groups, first = [], 0
    for count in counts:
        groups.append([AffineExpr.dimension(first + number) for number in range(count)])
        first += count
    return groups


def padded(value: SSAValue, geometry: Geometry, sizes: Shape, fill: object = 0) -> SSAValue:
    """Pads the spatial axes of `value` to the extent that `sizes` windows read."""
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
    """The padded index of position `inside` in window `windows`: w * stride + k * dilation."""
    rows = zip(windows, inside, geometry.strides, geometry.dilations, strict=True)
    return [window * stride + at * dilation for window, at, stride, dilation in rows]


def spread(value: SSAValue, geometry: Geometry, space: Shape) -> tuple[SSAValue, Shape]:
    """
    Dilates values per window by the strides, so that elements of `space` can collect them.

    At kernel position q from the end, element i of `space` reads index `i + q * dilation + shift`:
    a window that covers i, or zero. Returns the dilated tensor and the shifts.
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
    The windows along an axis that may cover an element: `count` of them, last first.

    `before` and `after` are the numbers of windows to pad at both ends. With few windows, every
    element reads `every` window, in order.
    """

    stride: int
    low: int
    count: int
    span: int
    """Exclusive bound of the distance of an element from the start of such a window."""
    before: int = 0
    after: int = 0
    every: bool = False

    @property
    def reaches_back(self) -> bool:
        """Whether some windows start after elements that read them."""
        return self.every and self.low < (self.count - 1) * self.stride

    def window(self, place: AffineExpr, number: AffineExpr) -> AffineExpr:
        """The index of an element's `number`th window, in the padded tensor."""
        if self.every:
            return number
        last = place + self.low
        return (last // self.stride if self.stride > 1 else last) - number + self.before


def covering(geometry: Geometry, space: Shape, windows: Shape) -> list[Cover]:
    """The windows that may cover elements of `space`, for each axis."""
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
    """Pads values per window with zeros for missing windows at both ends."""
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
    """The index in a spread tensor of element `places` at position `inside` from the end."""
    rows = zip(places, inside, geometry.dilations, shifts, strict=True)
    return [place + at * dilation + shift for place, at, dilation, shift in rows]


def reversed_places(inside: Sequence[AffineExpr], kernel: Shape) -> list[AffineExpr]:
    """Positions in a kernel, counted from its end."""
    return [AffineExpr.constant(size - 1) - at for at, size in zip(inside, kernel, strict=True)]
