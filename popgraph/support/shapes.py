"""Shape arithmetic: broadcasting, windows, reductions, on tuples of ints."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from popgraph.support.errors import TypeMismatchError

Shape = tuple[int, ...]

__all__ = [
    "KNOWN_ELEMENTS",
    "Shape",
    "expanded_indices_shape",
    "broadcast",
    "prod",
    "reduced",
    "text",
    "window_output",
]

KNOWN_ELEMENTS = 256
"""
Maximum number of elements of values that are folded during import: shapes, axes, pads, scales.
"""


def text(shape: Sequence[int | str]) -> str:
    """`2x3x4`, or `scalar`; dimensions may have names, as in `Nx4`."""
    return "x".join(str(dim) for dim in shape) or "scalar"


def broadcast(*shapes: Sequence[int]) -> Shape:
    """The NumPy broadcast of shapes; an error names the shapes."""
    rank = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        wide = {dim for dim in dims if dim != 1}
        if len(wide) > 1:
            listed = " and ".join(text(shape) for shape in shapes)
            raise TypeMismatchError(
                f"shapes {listed} do not broadcast together",
                hint="aligned from the right, dimensions must be equal, or 1",
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def reduced(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> Shape:
    """The shape after reducing `axes` (already non-negative)."""
    if keepdims:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def expanded_indices_shape(indices: Shape, rank: int, axis: int, grouped: bool) -> Shape:
    """The shape of PopART's indices, expanded to the rank of the data; a vector indexes `axis`."""
    first = int(grouped)
    if len(indices) - first == 1:
        indices = (*indices[:first], *[1] * (axis - first), *indices[first:])
    return (*indices, *[1] * (rank - len(indices)))


def window_output(size: int, kernel: int, stride: int, dilation: int, low: int, high: int) -> int:
    """The number of windows along an axis (floor)."""
    return (size + low + high - (dilation * (kernel - 1) + 1)) // stride + 1


def unpooled(
    space: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> Shape:
    """The smallest spatial shape with these numbers of windows; strides default to 1."""
    steps, around = strides or [1] * len(space), pads or [0] * (2 * len(space))
    rows = zip(space, kernel, steps, around, around[len(space) :], strict=False)
    return tuple((size - 1) * step + width - low - high for size, width, step, low, high in rows)
