"""Axis orders through views: the memory order that a reshaped tensor inherits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from popgraph.support.shapes import Shape, prod

AxisOrder: TypeAlias = tuple[int, ...]
"""The axes from the outermost to the innermost in memory."""


def order_of_view(source: Shape, order: AxisOrder, viewed: Shape) -> AxisOrder | None:
    """
    The axis order of a view of a source that is stored in `order`.

    None if the view merges axes that are not adjacent in memory.
    """
    if 0 in source:
        return None
    strides = _strides(source, order)
    found: dict[int, int] = {}
    for axes, parts in _aligned(source, viewed):
        if any(strides[outer] != strides[inner] * source[inner] for outer, inner in pairwise(axes)):
            return None
        step = strides[axes[-1]]
        for part in reversed(parts):
            found[part] = step
            step *= viewed[part]
    ones = [axis for axis, size in enumerate(viewed) if axis not in found]
    return (*ones, *sorted(found, key=lambda axis: -found[axis]))


def _strides(shape: Shape, order: AxisOrder) -> dict[int, int]:
    sizes = [shape[axis] for axis in order]
    return {axis: prod(sizes[at + 1 :]) for at, axis in enumerate(order)}


def _aligned(source: Shape, viewed: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Pairs the smallest runs of axes with equal numbers of elements; drops axes of size 1."""
    # [6, 4] and [2, 3, 4]: axis 0 with axes 0 and 1, axis 1 with axis 2.
    left = [axis for axis, size in enumerate(source) if size != 1]
    right = [axis for axis, size in enumerate(viewed) if size != 1]
    while left:
        axes, parts = [left.pop(0)], [right.pop(0)]
        while (have := _count(source, axes)) != (want := _count(viewed, parts)):
            if have < want:
                axes.append(left.pop(0))
            else:
                parts.append(right.pop(0))
        yield axes, parts


def _count(shape: Shape, axes: Sequence[int]) -> int:
    return prod(shape[axis] for axis in axes)
