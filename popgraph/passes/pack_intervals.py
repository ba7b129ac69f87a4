"""Where in one memory does each piece stand, when pieces that live at once must not overlap?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A piece of memory and when it is needed, both ends included."""

    first: int
    last: int
    size: int


def lower_bound(intervals: Sequence[Interval]) -> int:
    """The most bytes that are alive at once: no packing is smaller."""
    changes: dict[int, int] = {}
    for first, last, size in intervals:
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    alive = most = 0
    for time in sorted(changes):
        alive += changes[time]
        most = max(most, alive)
    return most


_ORDERS: tuple[Callable[[Interval], tuple[int, ...]], ...] = (
    lambda piece: (-piece.size, piece.first),
    lambda piece: (-(piece.last - piece.first), -piece.size, piece.first),
    lambda piece: (piece.first, -piece.size),
    lambda piece: (-piece.size * (piece.last - piece.first + 1), piece.first),
)
"""Packing well is hard in general; one of these orders is nearly always close to the bound."""


def pack(intervals: Sequence[Interval]) -> tuple[list[int], int]:
    """An offset for every interval, and the size of the memory that holds them all."""
    bound = lower_bound(intervals)
    best: tuple[list[int], int] = [0] * len(intervals), 0
    for number, order in enumerate(_ORDERS):
        found = _pack_in_order(intervals, order)
        if number == 0 or found[1] < best[1]:
            best = found
        if best[1] == bound:
            break
    return best


def _pack_in_order(
    intervals: Sequence[Interval], order: Callable[[Interval], tuple[int, ...]]
) -> tuple[list[int], int]:
    """Each piece goes into the tightest gap between those placed before it."""
    count = len(intervals)
    numbers = sorted(range(count), key=lambda number: (order(intervals[number]), number))
    first, last, begin, end = (np.zeros(count, np.int64) for _ in range(4))
    offsets = [0] * count
    for placed, number in enumerate(numbers):
        piece = intervals[number]
        alive = (first[:placed] <= piece.last) & (last[:placed] >= piece.first)
        offset = _tightest_gap(begin[:placed][alive], end[:placed][alive], piece.size)
        first[placed], last[placed] = piece.first, piece.last
        begin[placed], end[placed] = offset, offset + piece.size
        offsets[number] = offset
    return offsets, int(end.max(initial=0))


def _tightest_gap(
    begin: np.ndarray[tuple[int], np.dtype[np.int64]],
    end: np.ndarray[tuple[int], np.dtype[np.int64]],
    size: int,
) -> int:
    """The start of the smallest gap that holds `size` bytes; else the end of everything."""
    if not size or not len(begin):
        return 0
    order = np.argsort(begin, kind="stable")
    low = np.concatenate([[0], np.maximum.accumulate(end[order])])
    room = begin[order] - low[:-1]
    fits = np.flatnonzero(room >= size)
    if len(fits):
        return int(low[fits[np.argmin(room[fits])]])
    return int(low[-1])
