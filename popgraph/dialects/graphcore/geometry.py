"""Window geometry over spatial axes: kernel, strides, dilations, padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from popgraph.dialects.graphcore.base import Array
from popgraph.support.shapes import Shape

Index: TypeAlias = tuple[Any, ...]
"""An ellipsis and one slice per spatial axis, for NumPy."""


@dataclass(frozen=True)
class Geometry:
    """Windows of shape `kernel`; every tuple has one value per spatial axis."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    low: Shape
    high: Shape

    @property
    def extents(self) -> Shape:
        """The span of a window along each axis: dilation * (size - 1) + 1."""
        return tuple(
            dilation * (size - 1) + 1
            for size, dilation in zip(self.kernel, self.dilations, strict=True)
        )

    def fits(self, spatial: Shape) -> Shape:
        """The number of windows along each axis of a padded shape; 0 or less if none fits."""
        rows = zip(spatial, self.low, self.high, self.extents, self.strides, strict=True)
        return tuple(
            (size + low + high - extent) // stride + 1 for size, low, high, extent, stride in rows
        )

    def padded(self, array: Array, fill: float, sizes: Shape) -> Array:
        """`array` with its padding, extended to the end of the last of `sizes` windows."""
        rank = len(self.kernel)
        spatial = array.shape[-rank:]
        ends = zip(spatial, self.low, self.high, self.reach(sizes), strict=True)
        after = [max(high, reach - low - size) for size, low, high, reach in ends]
        widths = [(0, 0)] * (array.ndim - rank) + list(zip(self.low, after, strict=True))
        return np.asarray(np.pad(array, widths, constant_values=fill))

    def reach(self, sizes: Shape) -> Shape:
        """The length of the padded axes that `sizes` windows cover."""
        rows = zip(sizes, self.strides, self.extents, strict=True)
        return tuple(max(0, (size - 1) * stride + extent) for size, stride, extent in rows)

    def view(self, padded: Array, sizes: Shape) -> Array:
        """All windows of a padded array: its leading axes, `sizes`, then `kernel`."""
        rank = len(self.kernel)
        axes = tuple(range(padded.ndim - rank, padded.ndim))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.extents, axes)
        starts = [
            slice(0, size * stride, stride)
            for size, stride in zip(sizes, self.strides, strict=True)
        ]
        inner = [slice(None, None, dilation) for dilation in self.dilations]
        index: Index = (..., *starts, *inner)
        return np.asarray(windows[index])

    def offsets(self) -> Iterator[Shape]:
        """All offsets in a window, in row-major order."""
        return np.ndindex(*self.kernel)

    def places(self, offset: Shape, sizes: Shape) -> Index:
        """The NumPy index that selects element `offset` of every window of a padded array."""
        rows = zip(offset, self.dilations, self.strides, sizes, strict=True)
        spans = (
            slice(at * dilation, at * dilation + max(0, (size - 1) * stride + 1), stride)
            if size
            else slice(0, 0)
            for at, dilation, stride, size in rows
        )
        return (..., *spans)

    def inside(self, spatial: Shape) -> Index:
        """The NumPy index that removes the padding of a padded array."""
        rows = zip(self.low, spatial, strict=True)
        return (..., *(slice(low, low + size) for low, size in rows))

    def counts(self, spatial: Shape, sizes: Shape, include_pad: bool) -> Array:
        """
        The number of elements in each of `sizes` windows.

        `include_pad` counts padding. Positions beyond it never count; the last window of
        ceil mode may reach there.
        """
        result = np.ones((), np.int64)
        rows = zip(spatial, sizes, self.kernel, self.strides, self.dilations, strict=True)
        for axis, (size, count, kernel, stride, dilation) in enumerate(rows):
            low, high = self.low[axis], self.high[axis]
            first, end = (-low, size + high) if include_pad else (0, size)
            at = np.arange(count)[:, None] * stride - low + np.arange(kernel) * dilation
            result = np.multiply.outer(result, ((at >= first) & (at < end)).sum(1))
        return result
