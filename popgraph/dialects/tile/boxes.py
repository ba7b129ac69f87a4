"""Boxes of indices, many at a time, and intervals of row-major numbers as boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from popgraph.support.arrays import Array


@dataclass(frozen=True)
class Boxes:
    """A box of indices for each piece of work: from `low` to before `high`, a row for each."""

    low: Array
    high: Array

    @property
    def volumes(self) -> Array:
        """How many indices each has."""
        extents: Array = np.maximum(self.high - self.low, 0)
        found: Array = extents.prod(axis=1)
        return found

    def meet(self, other: Boxes) -> Boxes:
        """What each has in common with its counterpart."""
        return Boxes(np.maximum(self.low, other.low), np.minimum(self.high, other.high))

    def window(self, piece: int) -> tuple[slice, ...]:
        """The box of one piece, as an index."""
        return tuple(
            slice(low, max(low, high))
            for low, high in zip(self.low[piece].tolist(), self.high[piece].tolist(), strict=True)
        )


@dataclass(frozen=True)
class Pieces:
    """What the tiles of a mapping have: each piece is on a tile of its own, as disjoint boxes."""

    tiles: Array
    boxes: tuple[Boxes, ...]

    @property
    def volumes(self) -> Array:
        """How many indices each piece has."""
        found: Array = np.sum([box.volumes for box in self.boxes], axis=0)
        return found


def interval_boxes(start: Array, end: Array, within: Boxes) -> Iterator[Boxes]:
    """
    Intervals of row-major numbers inside of boxes, as boxes: one around and two for each dimension.

    From the last dimension outwards, what does not fill a row at either end is a box of its own.
    """
    extents = np.maximum(within.high - within.low, 1)
    rank = extents.shape[1]
    steps = np.ones_like(extents)
    for dim in range(rank - 2, -1, -1):
        steps[:, dim] = steps[:, dim + 1] * extents[:, dim + 1]
    for dim in range(rank - 1, 0, -1):
        row = steps[:, dim - 1]
        rise, fall = -(-start // row) * row, end // row * row
        alone = rise > fall
        yield _interval_box(start, np.where(alone, end, rise), dim, steps, extents, within.low)
        start = np.where(alone, end, rise)
        fall = np.maximum(fall, start)
        yield _interval_box(fall, end, dim, steps, extents, within.low)
        end = fall
    if rank:
        yield _interval_box(start, end, 0, steps, extents, within.low)
    else:
        yield Boxes(within.low, within.high)


def _interval_box(
    start: Array, end: Array, dim: int, steps: Array, extents: Array, origin: Array
) -> Boxes:
    """The box of an interval that is inside of one row of `dim`, and whole behind it."""
    low, high = np.zeros_like(extents), extents.copy()
    rest = start.copy()
    for outer in range(dim):
        low[:, outer] = rest // steps[:, outer]
        high[:, outer] = low[:, outer] + 1
        rest = rest % steps[:, outer]
    low[:, dim] = rest // steps[:, dim]
    high[:, dim] = low[:, dim] + (end - start) // steps[:, dim]
    return Boxes(low + origin, high + origin)
