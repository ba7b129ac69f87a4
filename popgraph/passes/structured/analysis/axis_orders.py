"""Axis orders seen through views: the memory order that a reshaped tensor inherits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from popgraph.support.shapes import Shape, prod

AxisOrder: TypeAlias = tuple[int, ...]
"""The axes from the outermost in memory to the innermost."""


def seen_through(source: Shape, order: AxisOrder, viewed: Shape) -> AxisOrder | None:
    """
    The order of the axes of a view, when those of its source stand in `order`.

    None when the view puts axes together that do not stand side by side.
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
    """The smallest runs of axes with as many elements on both sides; axes of size 1 vanish."""
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
