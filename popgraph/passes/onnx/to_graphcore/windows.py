"""Lowers pooling; resolves window attributes: kernel, strides, dilations, automatic padding."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.dialects import graphcore as gc
from popgraph.passes.onnx.to_graphcore.node import Node
from popgraph.passes.onnx.to_graphcore.registry import Lowered, lowers
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape


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
        spatial = node.shape[2:]
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


def _pool_windows(node: Node) -> tuple[Windows, Shape]:
    windows = Windows.of(node, node.integers("kernel_shape"))
    return windows, windows.sizes(bool(node.integer("ceil_mode")))


@lowers("MaxPool")
def max_pool(node: Node) -> Lowered:
    if node.wants(1):
        raise node.unsupported("the output Indices", "use the first output only")
    windows, sizes = _pool_windows(node)
    return gc.MaxPoolOp(
        node[0],
        kernel=windows.kernel,
        strides=windows.strides,
        dilations=windows.dilations,
        pads=windows.pads,
        sizes=sizes,
    )


@lowers("AveragePool")
def average_pool(node: Node) -> Lowered:
    windows, sizes = _pool_windows(node)
    return gc.AveragePoolOp(
        node[0],
        kernel=windows.kernel,
        strides=windows.strides,
        dilations=windows.dilations,
        pads=windows.pads,
        sizes=sizes,
        include_pad=bool(node.integer("count_include_pad")),
    )


def _spatial(node: Node) -> tuple[int, ...]:
    return tuple(range(2, node.rank))


@lowers("GlobalAveragePool")
def global_average_pool(node: Node) -> Lowered:
    return gc.ReduceMeanOp(node[0], axes=_spatial(node), keepdims=True)


@lowers("GlobalMaxPool")
def global_max_pool(node: Node) -> Lowered:
    return gc.ReduceMaxOp(node[0], axes=_spatial(node), keepdims=True)
