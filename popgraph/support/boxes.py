"""Boxes of tensors: what a slice in Python's notation, such as `w[:8, 4:6]`, selects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from operator import mul

from popgraph.support.shapes import Shape, prod, text

_BOUND = r"\s*(?:[+-]?\d+)?\s*"
_SLICED = re.compile(r"(.+)\[([^\[\]]*:[^\[\]]*)\]", re.DOTALL)
_RANGE = re.compile(rf"({_BOUND}):({_BOUND})(?::({_BOUND}))?")


class BadSlice(ValueError):
    """A slice that selects no box of a tensor; the message says why."""


@dataclass(frozen=True)
class Box:
    """A range of indices on each axis of a tensor."""

    starts: Shape
    sizes: Shape

    @staticmethod
    def of(slices: str, shape: Shape) -> Box:
        """The box that a slice such as `:8, 4:6` selects in a shape; BadSlice if there is none."""
        ranges = slices.split(",")
        if len(ranges) > len(shape):
            raise BadSlice(f"it has {len(ranges)} axes, and the tensor {len(shape)}: {text(shape)}")
        ends = [
            _ends(one.strip(), axis, size)
            for axis, (one, size) in enumerate(zip(ranges, shape, strict=False))
        ]
        ends += [(0, size) for size in shape[len(ranges) :]]
        return Box(tuple(start for start, _ in ends), tuple(stop - start for start, stop in ends))

    def covers(self, shape: Shape) -> bool:
        """Whether it is all of a tensor of this shape."""
        return self.sizes == shape

    @property
    def places(self) -> tuple[slice, ...]:
        """The index of its elements in an array."""
        return tuple(
            slice(start, start + size) for start, size in zip(self.starts, self.sizes, strict=True)
        )

    def rows(self, shape: Shape) -> Iterator[tuple[int, int, int, int]]:
        """
        Its elements in a tensor of this shape, as (first, rows, stride, length of a row).

        Rows are contiguous and as long as possible, and the rows that are a stride apart are one
        tuple. They are in row-major order.
        """
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        inner = self._first_of_whole(len(shape) - 1, shape)
        outer = self._first_of_whole(inner - 1, shape)
        count, length = prod(self.sizes[outer:inner]), prod(self.sizes[inner:])
        stride = strides[inner - 1] if inner else length
        begun = sum(map(mul, self.starts, strides))
        for index in product(*map(range, self.sizes[:outer])):
            yield begun + sum(map(mul, index, strides)), count, stride, length

    def _first_of_whole(self, axis: int, shape: Shape) -> int:
        """The first of the axes up to this one that are one range: all but it are whole."""
        while axis > 0 and self.sizes[axis] == shape[axis]:
            axis -= 1
        return max(axis, 0)

    def __str__(self) -> str:
        return ", ".join(f"{one.start}:{one.stop}" for one in self.places)


def _ends(written: str, axis: int, size: int) -> tuple[int, int]:
    """The first index of a range of an axis, and the one after its last."""
    found = _RANGE.fullmatch(written)
    if found is None:
        raise BadSlice(f"{written!r} is not a range such as 0:8")
    start, stop, step = (one.strip() if one else "" for one in found.groups())
    if step not in ("", "1", "+1"):
        raise BadSlice(f"{written!r} has a step of {step}, which must be 1")
    first, last = int(start or 0), int(stop or size)
    for bound in (first, last):
        if not -size <= bound <= size:
            raise BadSlice(f"{bound} is outside axis {axis}, which has {size} elements")
    first, last = (bound + size if bound < 0 else bound for bound in (first, last))
    if first >= last:
        raise BadSlice(f"{written!r} selects nothing of axis {axis}, which has {size} elements")
    return first, last


def split_slice(pattern: str) -> tuple[str, str]:
    """
    The name and the slice of `w[:8]`: `w` and `:8`; no slice in a plain name or pattern.

    Only brackets with a colon are a slice: `w[12]` is a name pattern.
    """
    found = _SLICED.fullmatch(pattern)
    return (pattern, "") if found is None else (found[1], found[2])


def selects(pattern: str, name: str) -> bool:
    """Whether a pattern selects a tensor, or a slice of it."""
    return name == pattern or fnmatchcase(name, split_slice(pattern)[0])


def slice_of(pattern: str, name: str) -> str:
    """The slice that a pattern selects of a tensor; "" for all of it, also if the name has one."""
    return "" if pattern == name else split_slice(pattern)[1]


def written(boxes: Mapping[str, Box]) -> tuple[str, ...]:
    """Boxes of tensors in text form, which `split_slice` reads: `w[0:8, 0:4]`."""
    return tuple(f"{name}[{box}]" for name, box in boxes.items())
