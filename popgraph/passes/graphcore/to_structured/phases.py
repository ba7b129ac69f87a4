"""Lowers gradients of strided convolutions to one convolution for each phase of the stride."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from xdsl.dialects.builtin import f32, f64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects.graphcore.base import integer, shape_of, tensor_of
from popgraph.dialects.graphcore.geometry import Geometry
from popgraph.dialects.tile.affine import permutation
from popgraph.passes.graphcore.to_structured.contractions import (
    AnyInputGrad,
    contract,
    lower_conv_input_grad,
    split,
    words_of,
)
from popgraph.passes.graphcore.to_structured.lower_movement import assembled, moved, viewed
from popgraph.passes.graphcore.to_structured.sliding import dimensions
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import PIXEL_LANES, Tuning


@dataclass(frozen=True)
class Phase:
    """
    Every `step`th element of an axis, from `first`: they use the same positions of the kernel.

    At tap t, element j of the phase uses kernel position `tap + t * tap_step` and window
    `window + j - t * window_step`.
    """

    first: int
    step: int
    count: int
    taps: int
    tap: int
    tap_step: int
    window: int
    window_step: int

    @property
    def reach(self) -> tuple[int, int]:
        """The first and the last window that the phase reads."""
        back = (self.taps - 1) * self.window_step
        return self.window - back, self.window + self.count - 1

    def window_at(self, place: AffineExpr, tap: AffineExpr, missing: int) -> AffineExpr:
        """The padded window of element `place` at tap `tap` from the end; `missing` are padded."""
        return place + tap * self.window_step + (self.reach[0] + missing)

    def kernel_at(self, tap: AffineExpr) -> AffineExpr:
        return AffineExpr.constant(self.tap + (self.taps - 1) * self.tap_step) - (
            tap * self.tap_step
        )


def phases_of(kernel: int, stride: int, dilation: int, low: int, size: int) -> list[Phase]:
    """The phases of an axis with `size` elements that use at least one kernel position."""
    common = math.gcd(stride, dilation)
    found = []
    for first in range(min(stride, size)):
        taps = [tap for tap in range(kernel) if (first + low - tap * dilation) % stride == 0]
        if taps:
            found.append(
                Phase(
                    first,
                    stride,
                    -(-(size - first) // stride),
                    len(taps),
                    taps[0],
                    stride // common,
                    (first + low - taps[0] * dilation) // stride,
                    dilation // common,
                )
            )
    return found


def axes_of(geometry: Geometry, space: Shape) -> list[list[Phase]]:
    rows = zip(
        *(geometry.kernel, geometry.strides, geometry.dilations, geometry.low, space), strict=True
    )
    return [phases_of(*row) for row in rows]


def lower_by_phases(op: AnyInputGrad, tuning: Tuning) -> SSAValue:
    """
    conv_input_grad(dy, w)  ->  tile.assemble of a contraction for each phase.

    Without phases, dy would be dilated with zeros, and most products would be zero. With a single
    window, few channels or many phases, one contraction computes all phases as channels.
    """
    geometry = _with_disjoint_windows(op.geometry(shape_of(op.w)), shape_of(op.dy)[2:])
    axes = axes_of(geometry, op.shape.data[2:])
    if prod(geometry.strides) == 1 or not all(axes):
        return lower_conv_input_grad(op)
    if _is_one_window(op):
        return _interleaved(op, replace(geometry, strides=geometry.kernel))
    if _is_interleaved(op, axes, tuning):
        return _interleaved(op, geometry)
    return _by_phase(op, geometry, axes)


def _with_disjoint_windows(geometry: Geometry, windows: Shape) -> Geometry:
    """Sets the stride of a single window to at least its extent: each element meets one tap."""
    rows = zip(geometry.strides, geometry.extents, windows, strict=True)
    strides = tuple(max(stride, extent) if count == 1 else stride for stride, extent, count in rows)
    return replace(geometry, strides=strides)


def _by_phase(op: AnyInputGrad, geometry: Geometry, axes: Sequence[Sequence[Phase]]) -> SSAValue:
    groups = integer(op.groups)
    ends = [
        (min(phase.reach[0] for phase in phases), max(phase.reach[1] for phase in phases))
        for phases in axes
    ]
    wide, missing = _with_missing(op.dy, ends)
    dy, w = split(wide, 1, groups), split(op.w, 0, groups)
    combined = list(product(*axes))
    pieces = [_phase(op, dy, w, phases, missing) for phases in combined]
    offsets = [[0, 0, *(phase.first for phase in phases)] for phases in combined]
    steps = [[1, 1, *geometry.strides]] * len(combined)
    return assembled(pieces, offsets, steps, op.shape.data)


def _phase(
    op: AnyInputGrad, dy: SSAValue, w: SSAValue, phases: Sequence[Phase], missing: Shape
) -> SSAValue:
    groups, weight, result = integer(op.groups), shape_of(op.w), op.shape.data
    grouped = [groups] if groups > 1 else []
    sizes, taps = [phase.count for phase in phases], [phase.taps for phase in phases]
    parallel = [result[0], *grouped, weight[1], *sizes]
    n, g, c, i, m, k = dimensions(1, len(grouped), 1, len(sizes), 1, len(sizes))
    rows = zip(phases, i, k, missing, strict=True)
    windows = [phase.window_at(place, tap, before) for phase, place, tap, before in rows]
    inside = [phase.kernel_at(tap) for phase, tap in zip(phases, k, strict=True)]
    places = ([*n, *g, *m, *windows], [*g, *m, *c, *inside])
    domain = (*parallel, weight[0] // groups, *taps)
    element = tensor_of(op.result).element_type
    y = contract(dy, w, places, domain, len(parallel), element, words_of(op))
    return viewed(y, (*result[:2], *sizes))


def _with_missing(dy: SSAValue, ends: Sequence[tuple[int, int]]) -> tuple[SSAValue, Shape]:
    """dy padded with zeros to all windows that are read, and the number of windows added before."""
    shape = shape_of(dy)
    before = tuple(max(0, -first) for first, _ in ends)
    rows = zip(before, ends, shape[2:], strict=True)
    wide = tuple(low + max(count, last + 1) for low, (_, last), count in rows)
    if wide == shape[2:]:
        return dy, before
    pieces = ([dy], [[0, 0, *before]], [[1] * len(shape)])
    return assembled(*pieces, (*shape[:2], *wide)), before


# All phases in one convolution


@dataclass(frozen=True)
class InterleavedAxis:
    """An axis whose phases are computed as channels of one convolution, with equally many taps."""

    stride: int
    taps: int
    low: int
    size: int

    @property
    def first(self) -> int:
        """The last window of the first element."""
        return self.low // self.stride

    @property
    def count(self) -> int:
        return (self.low + self.size - 1) // self.stride - self.first + 1

    @property
    def ends(self) -> tuple[int, int]:
        """The first and the last window read."""
        return self.first - (self.taps - 1), self.first + self.count - 1


def _interleaved_axes(geometry: Geometry, space: Shape) -> list[InterleavedAxis]:
    rows = zip(geometry.strides, geometry.kernel, geometry.low, space, strict=True)
    return [
        InterleavedAxis(stride, -(-kernel // stride), low, size)
        for stride, kernel, low, size in rows
    ]


def _is_one_window(op: AnyInputGrad) -> bool:
    """
    Whether dy is one pixel, and its window the whole result: a matmul, and a view of its result.

    The first layer of a generator, and the gradient of a convolution that covers its image.
    """
    weight, windows = shape_of(op.w), shape_of(op.dy)
    return prod(windows[2:]) == 1 and weight[2:] == op.shape.data[2:] and not any(op.pads)


def _is_interleaved(op: AnyInputGrad, axes: Sequence[Sequence[Phase]], tuning: Tuning) -> bool:
    """Whether one convolution of all phases pays in spite of its zero taps."""
    if prod(op.dilations.data) != 1:
        return False
    phases, channels = prod(map(len, axes)), shape_of(op.w)[1]
    if phases > tuning.most_phases:
        return True
    return channels <= tuning.least_channels and not _fill_rows(op, axes, tuning)


def _fill_rows(op: AnyInputGrad, axes: Sequence[Sequence[Phase]], tuning: Tuning) -> bool:
    """
    Whether rows of a phase fill vectors, while the channels of all phases together do not.

    Not for a single channel, which reads as much as it computes, nor for f16, which would be
    widened once for each phase.
    """
    if tensor_of(op.result).element_type not in (f32, f64):
        return False
    channels, lanes = shape_of(op.w)[1], PIXEL_LANES
    together = channels * prod(map(len, axes))
    filled = together / (-(-together // lanes) * lanes)
    is_long = all(tuning.fills_vectors(phase.count) for phase in axes[-1])
    few = 1 < channels * integer(op.groups) < tuning.least_channels
    return is_long and few and filled < tuning.least_filled


def _interleaved(op: AnyInputGrad, geometry: Geometry) -> SSAValue:
    """One convolution with a channel for each phase of each channel, interleaved afterwards."""
    groups, weight, result = integer(op.groups), shape_of(op.w), op.shape.data
    axes = _interleaved_axes(geometry, result[2:])
    wide, missing = _with_missing(op.dy, [axis.ends for axis in axes])
    dy, w = split(wide, 1, groups), split(_kernels(op.w, axes), 0, groups)
    grouped = [groups] if groups > 1 else []
    counts, taps = [axis.count for axis in axes], [axis.taps for axis in axes]
    parallel = [result[0], *grouped, weight[1] * prod(geometry.strides), *counts]
    n, g, c, i, m, k = dimensions(1, len(grouped), 1, len(axes), 1, len(axes))
    windows = [
        place + tap + (axis.ends[0] + before)
        for place, tap, axis, before in zip(i, k, axes, missing, strict=True)
    ]
    inside = [AffineExpr.constant(axis.taps - 1) - tap for axis, tap in zip(axes, k, strict=True)]
    places = ([*n, *g, *m, *windows], [*g, *m, *c, *inside])
    domain = (*parallel, weight[0] // groups, *taps)
    element = tensor_of(op.result).element_type
    y = contract(dy, w, places, domain, len(parallel), element, words_of(op))
    return _in_order(viewed(y, (*result[:2], *geometry.strides, *counts)), axes, result)


def _kernels(w: SSAValue, axes: Sequence[InterleavedAxis]) -> SSAValue:
    """The kernel positions of each phase as separate kernels, padded with zeros."""
    shape, rank = shape_of(w), len(axes)
    full = (*shape[:2], *(axis.taps * axis.stride for axis in axes))
    if full != shape:
        w = assembled([w], [[0] * len(shape)], [[1] * len(shape)], full)
    halves = [one for axis in axes for one in (axis.taps, axis.stride)]
    order = [0, 1, *(3 + 2 * at for at in range(rank)), *(2 + 2 * at for at in range(rank))]
    parts = _transposed(viewed(w, (*shape[:2], *halves)), order)
    phases = prod(axis.stride for axis in axes)
    return viewed(parts, (shape[0], shape[1] * phases, *(axis.taps for axis in axes)))


def _in_order(y: SSAValue, axes: Sequence[InterleavedAxis], result: Shape) -> SSAValue:
    """[n, c, phases, positions]  ->  [n, c, positions * phases], cut to the result's elements."""
    rank = len(axes)
    order = [0, 1, *(one for at in range(rank) for one in (2 + rank + at, 2 + at))]
    flat = (*result[:2], *(axis.count * axis.stride for axis in axes))
    y = viewed(_transposed(y, order), flat)
    starts = [0, 0, *(axis.low % axis.stride for axis in axes)]
    places = [AffineExpr.dimension(at) + start for at, start in enumerate(starts)]
    if flat == result:
        return y
    return moved(y, AffineMap(len(places), 0, tuple(places)), result)


def _transposed(value: SSAValue, order: Sequence[int]) -> SSAValue:
    shape = shape_of(value)
    result, long = [shape[axis] for axis in order], [axis for axis in order if shape[axis] != 1]
    if long == sorted(long):
        return viewed(value, result)
    return moved(value, permutation(order), result)
