"""Lowers pooling; resolves window attributes: kernel, strides, dilations, automatic padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.graphcore.pooling import PoolOptions
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.complaints import PADDING
from popgraph.operators.movement import I64, reshaped
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, chooses, lowers
from popgraph.support import dtypes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Windows:
    """The window attributes of a node, with defaults filled in and automatic padding resolved."""

    inputs: Shape
    kernel: Shape
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @staticmethod
    def of(node: Node, kernel: Shape) -> Windows:
        return Windows.over(node, node.shape[2:], kernel)

    @staticmethod
    def over(node: Node, spatial: Shape, kernel: Shape) -> Windows:
        """Windows over an image that need not be the first input."""
        if len(kernel) != len(spatial):
            raise TypeMismatchError(
                f"a window of rank {len(kernel)} over {len(spatial)} spatial dimensions"
            )
        given = node.integers("kernel_shape", kernel)
        if tuple(given) != tuple(kernel):
            raise TypeMismatchError(
                f"kernel_shape is {list(given)}, but the weights are for {list(kernel)}"
            )
        ones = (1,) * len(spatial)
        strides = node.integers("strides", ones) or ones
        dilations = node.integers("dilations", ones) or ones
        bare = Windows(
            spatial, tuple(kernel), strides, dilations, (0,) * len(ones), (0,) * len(ones)
        )
        return bare._padded(node)

    def _padded(self, node: Node) -> Windows:
        mode = node.text("auto_pad", "NOTSET") or "NOTSET"
        rank = len(self.kernel)
        if mode == "VALID":
            return self
        if mode == "NOTSET":
            pads = node.integers("pads", (0,) * (2 * rank)) or (0,) * (2 * rank)
            return self._with(pads[:rank], pads[rank:])
        total = [
            max((-(-size // stride) - 1) * stride + width - size, 0)
            for size, stride, width in zip(self.inputs, self.strides, self.widths, strict=True)
        ]
        less = tuple(pad // 2 for pad in total)
        more = tuple(pad - pad // 2 for pad in total)
        return self._with(less, more) if mode == "SAME_UPPER" else self._with(more, less)

    def _with(self, low: tuple[int, ...], high: tuple[int, ...]) -> Windows:
        return Windows(self.inputs, self.kernel, self.strides, self.dilations, low, high)

    @property
    def pads(self) -> tuple[int, ...]:
        return self.low + self.high

    @property
    def widths(self) -> tuple[int, ...]:
        """What a window spans, with its holes."""
        return tuple(
            dilation * (size - 1) + 1
            for size, dilation in zip(self.kernel, self.dilations, strict=True)
        )

    def sizes(self, ceil: bool) -> Shape:
        """How many windows there are along each axis."""
        return tuple(self._size(axis, ceil) for axis in range(len(self.kernel)))

    def _size(self, axis: int, ceil: bool) -> int:
        size, stride = self.inputs[axis], self.strides[axis]
        room = size + self.low[axis] + self.high[axis] - self.widths[axis]
        if not ceil:
            return room // stride + 1
        count = -(-room // stride) + 1
        # A window that would begin behind the data, in the padding, is left out.
        return count - ((count - 1) * stride >= size + self.low[axis])

    def places(self, sizes: Shape, row_major: bool = True) -> NDArray[np.int64]:
        """
        Which elements of a flat image each window sees, a row for each; -1 outside the image.

        Counted along the last axis first if `row_major`, else along the first one.
        """
        rank = len(sizes)
        total, outside = np.zeros((1,) * (2 * rank), np.int64), np.array(False)
        order = range(rank) if row_major else reversed(range(rank))
        step = prod(self.inputs)
        for axis in order:
            step //= max(1, self.inputs[axis])
            at = self.along(axis, sizes[axis])
            shape = [1] * (2 * rank)
            shape[axis], shape[rank + axis] = at.shape
            at = at.reshape(shape)
            outside = outside | (at < 0) | (at >= self.inputs[axis])
            total = total + at * step
        found: NDArray[np.int64] = np.where(outside, -1, total).reshape(prod(sizes), -1)
        return found

    def along(self, axis: int, count: int) -> NDArray[np.int64]:
        """Where the elements of `count` windows are along an axis."""
        starts = np.arange(count) * self.strides[axis] - self.low[axis]
        return np.asarray(
            starts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis], np.int64
        )


def _pool_windows(node: Node) -> tuple[Windows, Shape]:
    windows = Windows.of(node, node.integers("kernel_shape"))
    return windows, windows.sizes(bool(node.integer("ceil_mode")))


def _options(windows: Windows, sizes: Shape) -> PoolOptions:
    return {
        "kernel": windows.kernel,
        "strides": windows.strides,
        "dilations": windows.dilations,
        "pads": windows.pads,
        "sizes": sizes,
    }


@lowers("MaxPool")
def max_pool(node: Node) -> Lowered:
    windows, sizes = _pool_windows(node)
    largest = gc.MaxPoolOp(node[0], **_options(windows, sizes))
    return [largest, _largest_places(node, windows, sizes)] if node.wants(1) else largest


def _largest_places(node: Node, windows: Windows, sizes: Shape) -> Operand:
    """
    Where the first largest element of each window stands in the flat input.

    What a window sees outside of the image is the first thing that it sees inside once more: that
    is never larger, and where it is the largest it is the first.
    """
    places = windows.places(sizes)
    first = np.argmax(places >= 0, axis=1)[:, None]
    filled = np.where(places < 0, np.take_along_axis(places, first, 1), places)
    images, count = prod(node.shape[:2]), prod(node.shape[2:])
    flat = SSAValue.get(reshaped(node[0], (images, count)))
    seen = gc.GatherOp(flat, node.literal(filled.astype(np.uint64)), axis=1)
    chosen = gc.ArgMaxOp(seen, axis=2, keepdims=False, last=False)
    told = windows.places(sizes, row_major=not node.integer("storage_order"))
    told = np.where(told < 0, np.take_along_axis(told, first, 1), told)
    starts = node.literal(np.arange(len(told)) * told.shape[1])
    slot = cast(gc.AddOp(chosen, starts), dtypes.BY_NAME["u64"])
    found = gc.GatherOp(node.literal(told.reshape(-1)), slot, axis=0)
    image = gc.IotaOp(shape=shape_of(found.result), axis=0, dtype=I64)
    whole = gc.AddOp(found, gc.MulOp(image, node.literal(np.array(count, np.int64))))
    return reshaped(whole.result, (*node.shape[:2], *sizes))


@lowers("AveragePool")
def average_pool(node: Node) -> Lowered:
    windows, sizes = _pool_windows(node)
    return gc.AveragePoolOp(
        node[0], **_options(windows, sizes), include_pad=bool(node.integer("count_include_pad"))
    )


@lowers("LpPool")
def lp_pool(node: Node) -> Lowered:
    """The p-th root of what the p-th powers of the sizes of elements of a window add up to."""
    windows, sizes = _pool_windows(node)
    wide = computing(node)
    p = node.real("p", 2.0)
    powers = _powers(node, p, wide)
    mean = gc.AveragePoolOp(powers, **_options(windows, sizes), include_pad=False)
    counts = mean.counts if len(np.unique(mean.counts)) > 1 else mean.counts.reshape(-1)[:1]
    total = gc.MulOp(mean, node.literal(counts.astype(wide.numpy)))
    return cast(total if p == 1 else _root(node, total, p, wide), node.dtype)


def _powers(node: Node, p: float, wide: dtypes.DType) -> Operand:
    """The p-th powers of the sizes of elements."""
    sizes = gc.AbsOp(cast(node[0], wide))
    if p == 2:
        return gc.MulOp(sizes, sizes)
    return sizes if p == 1 else gc.PowOp(sizes, node.scalar(p, wide))


@lowers("GlobalLpPool")
def global_lp_pool(node: Node) -> Lowered:
    """The same, of a window that is the whole image."""
    wide, p = computing(node), node.real("p", 2.0)
    total = gc.ReduceSumOp(_powers(node, p, wide), axes=_spatial(node), keepdims=True)
    return cast(total if p == 1 else _root(node, total, p, wide), node.dtype)


def _root(node: Node, total: Operand, p: float, wide: dtypes.DType) -> Operand:
    """The p-th root, of nothing as well: its slope there is taken to be 0."""
    zero = node.scalar(0, wide)
    nothing = gc.CompareOp(total, zero, predicate="eq")
    some = gc.WhereOp(nothing, node.scalar(1, wide), total)
    root = gc.SqrtOp(some) if p == 2 else gc.PowOp(some, node.scalar(1 / p, wide))
    return gc.WhereOp(nothing, zero, root)


def _spatial(node: Node) -> tuple[int, ...]:
    return tuple(range(2, node.rank))


@lowers("GlobalAveragePool")
def global_average_pool(node: Node) -> Lowered:
    return gc.ReduceMeanOp(node[0], axes=_spatial(node), keepdims=True)


@lowers("GlobalMaxPool")
def global_max_pool(node: Node) -> Lowered:
    return gc.ReduceMaxOp(node[0], axes=_spatial(node), keepdims=True)


chooses("AveragePool", "LpPool", "MaxPool", auto_pad=PADDING)
