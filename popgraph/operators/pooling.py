"""
MaxPool, AveragePool, LpPool, the global pools, and MaxUnpool, a partial inverse of MaxPool.

Windows (kernel, strides, dilations, automatic padding) are shared with convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.graphcore.pooling import PoolOptions
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import Dim
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.complaints import MOST, PADDING, at_least, differ, listed, of_shape, shown
from popgraph.operators.lookups import from_start
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import (
    Bounds,
    Lowered,
    bounds,
    chooses,
    follows_data_sizes,
    lowers,
    requires,
)
from popgraph.support import dtypes, shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod

# Windows

LEAST = {"kernel_shape": 1, "strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
"""The minimum of the elements of each list attribute of windows."""


def one_per_axis(node: NodeView, spatial: int) -> Conflicts:
    """Lists have one element per spatial axis, `pads` two; none is below its minimum."""
    for name, least in LEAST.items():
        numbers = node.given_integers(name)
        if not numbers:
            continue
        count = spatial * (2 if name == "pads" else 1)
        if len(numbers) != count:
            yield TypeConflict(
                f"`{name}` has {len(numbers)} elements for {spatial} spatial axes",
                f"give {count}",
            )
        if not all(least <= number <= MOST for number in numbers):
            yield TypeConflict(f"`{name}` is {numbers}", f"its elements must be {least} or more")


def room_for_one(node: NodeView, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> Conflicts:
    """At least one window fits along every known axis; with `ceil_mode`, one always does."""
    if node.text("auto_pad", "NOTSET").startswith("SAME") or node.integer("ceil_mode"):
        return
    # An empty axis is legal with any window: the result is empty, too.
    known = [size if isinstance(size, int) else 0 for size in sizes]
    windows = Windows.over(node, known, [one if isinstance(one, int) else 1 for one in kernel])
    for axis, (size, room) in enumerate(zip(known, windows.rooms, strict=True)):
        span = windows.widths[axis]
        if span > room and size:
            yield TypeConflict(
                f"a window of {span} does not fit into {room} along spatial axis {axis}",
                "use a smaller kernel or dilation, or larger pads",
            )


@dataclass(frozen=True)
class Windows:
    """The window attributes of a node, with defaults filled in and automatic padding resolved."""

    inputs: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    low: tuple[int, ...]
    high: tuple[int, ...]

    @staticmethod
    def of(node: Node, kernel: Shape) -> Windows:
        windows = Windows.over(node, node.shape[2:], kernel)
        given = node.integers("kernel_shape", kernel)
        if given != kernel:
            raise TypeMismatchError(
                f"kernel_shape is {list(given)}, but the weights are for {list(kernel)}"
            )
        return windows

    @staticmethod
    def over(node: NodeView, spatial: Sequence[int], kernel: Sequence[int]) -> Windows:
        """Windows over an image that need not be the first input."""
        if len(kernel) != len(spatial):
            raise TypeMismatchError(
                f"a window of rank {len(kernel)} does not fit {len(spatial)} spatial axes"
            )
        zeros, ones = (0,) * len(spatial), (1,) * len(spatial)
        strides, dilations = (node.integers(name) or ones for name in ("strides", "dilations"))
        return Windows(tuple(spatial), tuple(kernel), strides, dilations, zeros, zeros)._padded(
            node
        )

    def _padded(self, node: NodeView) -> Windows:
        mode = node.text("auto_pad") or "NOTSET"
        rank = len(self.kernel)
        if mode == "VALID":
            return self
        if mode == "NOTSET":
            pads = node.integers("pads") or (0,) * (2 * rank)
            return self.with_pads(pads[:rank], pads[rank:])
        total = [
            max((-(-size // stride) - 1) * stride + width - size, 0)
            for size, stride, width in zip(self.inputs, self.strides, self.widths, strict=True)
        ]
        less = tuple(pad // 2 for pad in total)
        more = tuple(pad - pad // 2 for pad in total)
        return self.with_pads(less, more) if mode == "SAME_UPPER" else self.with_pads(more, less)

    def with_pads(self, low: tuple[int, ...], high: tuple[int, ...]) -> Windows:
        return replace(self, low=low, high=high)

    @property
    def pads(self) -> tuple[int, ...]:
        return self.low + self.high

    @property
    def rooms(self) -> tuple[int, ...]:
        """The size of each axis with its padding."""
        return tuple(map(sum, zip(self.inputs, self.low, self.high, strict=True)))

    @property
    def widths(self) -> tuple[int, ...]:
        """The span of a dilated window."""
        return tuple(
            dilation * (size - 1) + 1
            for size, dilation in zip(self.kernel, self.dilations, strict=True)
        )

    def sizes(self, ceil: bool = False) -> Shape:
        """The number of windows along each axis."""
        return tuple(self._size(axis, ceil) for axis in range(len(self.kernel)))

    def _size(self, axis: int, ceil: bool) -> int:
        stride, room = self.strides[axis], self.rooms[axis] - self.widths[axis]
        if not ceil:
            return room // stride + 1
        count = -(-room // stride) + 1
        # ceil_mode drops a last window that would start in the high padding.
        return count - ((count - 1) * stride >= self.inputs[axis] + self.low[axis])

    def places(self, sizes: Shape, row_major: bool = True) -> NDArray[np.int64]:
        """
        The flat indices of each window's elements, [windows, elements]; -1 outside the image.

        Indices are row-major, or column-major unless `row_major`.
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
        """The positions along an axis of the elements of `count` windows."""
        starts = np.arange(count) * self.strides[axis] - self.low[axis]
        return np.asarray(
            starts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis], np.int64
        )


# Pools

chooses("AveragePool", "LpPool", "MaxPool", auto_pad=PADDING)


@requires("AveragePool", "LpPool", "MaxPool")
def require_pool(node: NodeView) -> Conflicts:
    yield from require_global_pool(node)
    yield from _kernel(node)
    shape = node.shape_of(0)
    if shape is not None:
        yield from room_for_one(node, shape[2:], node.integers("kernel_shape"))


@requires("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def require_global_pool(node: NodeView) -> Conflicts:
    """`p` is positive; it is a real number in version 1, and an integer since."""
    yield from at_least(node, 0, 2)
    p = node.real("p", 2.0)
    if not 0 < p < math.inf:
        yield TypeConflict(f"`p` is {p:g}", "`p` must be larger than 0")


def _kernel(node: NodeView) -> Conflicts:
    """`kernel_shape` and the other lists fit the image."""
    shape, kernel = node.shape_of(0), node.given_integers("kernel_shape") or []
    if shape is not None:
        yield from one_per_axis(node, len(shape) - 2)
        if len(kernel) != len(shape) - 2:
            yield TypeConflict(
                f"`kernel_shape` is {kernel}", f"it must have {len(shape) - 2} elements"
            )


def _pool(node: Node) -> tuple[Windows, PoolOptions]:
    windows = Windows.of(node, node.integers("kernel_shape"))
    return windows, {
        "kernel": windows.kernel,
        "strides": windows.strides,
        "dilations": windows.dilations,
        "pads": windows.pads,
        "sizes": windows.sizes(bool(node.integer("ceil_mode"))),
    }


@lowers("MaxPool")
def max_pool(node: Node) -> Lowered:
    windows, options = _pool(node)
    largest = gc.MaxPoolOp(node[0], **options)
    sizes = tuple(options["sizes"])
    return [largest, _largest_places(node, windows, sizes)] if node.wants(1) else largest


def _largest_places(node: Node, windows: Windows, sizes: Shape) -> Operand:
    """
    The flat index of the first maximum of each window.

    Elements in the padding read the first one inside the image instead: this adds no larger
    element, and a tie is won by the first.
    """
    places = windows.places(sizes)
    first = np.argmax(places >= 0, axis=1)[:, None]
    filled = np.where(places < 0, np.take_along_axis(places, first, 1), places)
    images, count = prod(node.shape[:2]), prod(node.shape[2:])
    flat = reshaped(node[0], (images, count))
    seen = gc.GatherOp(flat, node.literal(filled.astype(np.uint64)), axis=1)
    chosen = gc.ArgMaxOp(seen, axis=2, keepdims=False, last=False)
    reported = windows.places(sizes, row_major=not node.integer("storage_order"))
    reported = np.where(reported < 0, np.take_along_axis(reported, first, 1), reported)
    starts = node.literal(np.arange(len(reported)) * reported.shape[1])
    slot = cast(gc.AddOp(chosen, starts), dtypes.BY_NAME["u64"])
    found = gc.GatherOp(node.literal(reported.reshape(-1)), slot, axis=0)
    image = gc.IotaOp(shape=shape_of(found), axis=0, dtype=I64)
    whole = gc.AddOp(found, gc.MulOp(image, node.literal(np.array(count, np.int64))))
    return reshaped(whole, (*node.shape[:2], *sizes))


@lowers("AveragePool")
def average_pool(node: Node) -> Lowered:
    _, options = _pool(node)
    include_pad = bool(node.integer("count_include_pad"))
    return gc.AveragePoolOp(node[0], **options, include_pad=include_pad)


@lowers("LpPool")
def lp_pool(node: Node) -> Lowered:
    """(sum of |x|^p)^(1/p) of each window."""
    _, options = _pool(node)
    mean = gc.AveragePoolOp(_powers(node), **options, include_pad=False)
    counts = mean.counts if len(np.unique(mean.counts)) > 1 else mean.counts.reshape(-1)[:1]
    return _root(node, gc.MulOp(mean, node.literal(counts.astype(computing(node).numpy))))


@lowers("GlobalLpPool")
def global_lp_pool(node: Node) -> Lowered:
    return _root(node, gc.ReduceSumOp(_powers(node), axes=_spatial(node), keepdims=True))


def _powers(node: Node) -> Operand:
    """|x|^p"""
    p, wide = node.real("p", 2.0), computing(node)
    sizes = gc.AbsOp(cast(node[0], wide))
    if p == 2:
        return gc.MulOp(sizes, sizes)
    return sizes if p == 1 else gc.PowOp(sizes, node.scalar(p, wide))


def _root(node: Node, total: Operand) -> SSAValue:
    """The p-th root; its gradient at 0 is defined as 0."""
    p, wide = node.real("p", 2.0), computing(node)
    if p == 1:
        return cast(total, node.dtype)
    zero = node.scalar(0, wide)
    nothing = gc.CompareOp(total, zero, predicate="eq")
    some = gc.WhereOp(nothing, node.scalar(1, wide), total)
    root = gc.SqrtOp(some) if p == 2 else gc.PowOp(some, node.scalar(1 / p, wide))
    return cast(gc.WhereOp(nothing, zero, root), node.dtype)


def _spatial(node: Node) -> tuple[int, ...]:
    return tuple(range(2, node.rank))


@lowers("GlobalAveragePool")
def global_average_pool(node: Node) -> Lowered:
    return gc.ReduceMeanOp(node[0], axes=_spatial(node), keepdims=True)


@lowers("GlobalMaxPool")
def global_max_pool(node: Node) -> Lowered:
    return gc.ReduceMaxOp(node[0], axes=_spatial(node), keepdims=True)


# MaxUnpool


def _unpooled(node: NodeView, space: Sequence[int]) -> Shape:
    """The smallest spatial shape of an image whose pool has these sizes."""
    lists = (node.integers(name) for name in ("kernel_shape", "strides", "pads"))
    return shapes.unpooled(space, *lists)


@requires("MaxUnpool")
def require_max_unpool(node: NodeView) -> Conflicts:
    yield from at_least(node, 0, 3)
    yield from listed(node, 2)
    shape, wanted = node.shape_of(0), node.integers_of(2)
    if shape is None:
        return
    yield from of_shape(node, 1, *shape)
    yield from _kernel(node)
    space = [size for size in shape[2:] if isinstance(size, int)]
    if len(space) < len(shape) - 2:
        return
    found = _unpooled(node, space)
    if min(found) < 1 and 0 not in space:
        yield TypeConflict(
            f"the image would be {shown(found)}", "use smaller `pads`: no axis may be empty"
        )
    least = (*shape[:2], *found)
    if wanted is not None and (
        len(wanted) != len(least)
        or any(map(differ, wanted[:2], least[:2]))
        or any(size < have for size, have in zip(wanted[2:], found, strict=True))
    ):
        yield TypeConflict(
            f"`output_shape` is {wanted}, but the image is {shown(least)}",
            "keep the batch and the channels, and do not shrink spatial axes",
        )


@bounds("MaxUnpool")
def places_in_image(node: NodeView) -> Iterator[Bounds]:
    x = node.static_shape_of(0)
    if x is not None:
        yield Bounds(1, "index", (0,), (prod(x[:2]) * prod(_unpooled(node, x[2:])) - 1,))


@lowers("MaxUnpool", structural=[2])
def max_unpool(node: Node) -> Lowered:
    """
    Scatters the elements into an image of zeros; the last of several with one index wins.

    Overlapping windows may have chosen the same element. Sorting by index makes duplicates
    adjacent, so that all but the last can be dropped.
    """
    inner = (*node.shape[:2], *_unpooled(node, node.shape[2:]))
    count = prod(node.shape)
    indices = reshaped(from_start(node, 1, prod(inner)), (count,))
    order = cast(gc.ArgTopKOp(indices, axis=0, count=count, largest=False), dtypes.BY_NAME["u64"])
    sorted_, values = (
        gc.GatherOp(value, order, axis=0).result for value in (indices, reshaped(node[0], (count,)))
    )
    kept = gc.WhereOp(_last_of_equals(node, sorted_), values, node.scalar(0))
    flat = gc.GatherGradOp(kept, sorted_, axis=0, size=prod(inner))
    return _placed(node, reshaped(flat, inner))


def _last_of_equals(node: Node, sorted_: SSAValue) -> Operand:
    (count,) = shape_of(sorted_)
    if count < 2:
        return node.literal(np.ones(count, bool))
    first, second = (sliced(sorted_, {0: (start, count - 1, 1)}) for start in (0, 1))
    last = gc.CompareOp(first, second, predicate="ne")
    return gc.ConcatOp([last, node.literal(np.ones(1, bool))], axis=0)


def _placed(node: Node, image: SSAValue) -> Operand:
    """The image, padded with zeros at its high ends to `output_shape`."""
    if node.optional(2) is None:
        return image
    have, wanted = shape_of(image), node.numbers(2, "the shape of the output")
    high = [more - size for size, more in zip(have, wanted, strict=False)]
    if len(wanted) != len(have) or min(high, default=0) < 0 or any(high[:2]):
        raise TypeMismatchError(
            f"output_shape is {list(wanted)}, but the image is {shapes.text(have)}",
            hint="keep the batch and the channels, and do not shrink spatial axes",
        )
    none = [0] * len(have)
    return gc.PadOp(image, low=none, high=high, interior=none, value=0.0)


follows_data_sizes("AveragePool GlobalAveragePool GlobalMaxPool MaxPool")
