"""Interval packing: arena offsets for buffers whose live ranges must not overlap in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A buffer with its live range, both ends included."""

    first: int
    last: int
    size: int


def lower_bound(intervals: Sequence[Interval]) -> int:
    """The most bytes alive at once; no packing is smaller."""
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
"""Greedy orders; the optimum is NP-hard (dynamic storage allocation, Garey and Johnson SR2)."""

PATIENCE = 20_000
"""Buffers placed in the search for a better order, over all attempts."""


class Packing(NamedTuple):
    """An offset for every interval, and the size of the memory that holds them all."""

    offsets: list[int]
    size: int


def pack(intervals: Sequence[Interval]) -> Packing:
    """The smallest packing found; the search ends at the lower bound."""
    # All networks in docs/performance.md reach it: arena / bound is 1.00.
    bound = lower_bound(intervals)
    best = Packing([0] * len(intervals), 0)
    for number, order in enumerate(_ORDERS):
        sequence = sorted(range(len(intervals)), key=lambda each: (order(intervals[each]), each))
        found = _improved(intervals, sequence, bound)
        if number == 0 or found.size < best.size:
            best = found
        if best.size == bound:
            break
    return best


def _improved(intervals: Sequence[Interval], sequence: list[int], bound: int) -> Packing:
    """The best packing in this order and in repeated ones that place the topmost buffers first."""
    best = found = _pack_in_order(intervals, sequence)
    seen = set[tuple[int, ...]]()
    for _ in range(PATIENCE // max(1, len(intervals) * len(_ORDERS))):
        if best.size == bound or tuple(sequence) in seen:
            break
        seen.add(tuple(sequence))
        highest = [n for n in sequence if found.offsets[n] + intervals[n].size == found.size]
        sequence = highest + [n for n in sequence if n not in highest]
        found = _pack_in_order(intervals, sequence)
        if found.size < best.size:
            best = found
    return best


def _pack_in_order(intervals: Sequence[Interval], sequence: Sequence[int]) -> Packing:
    """Best fit: each buffer goes into the tightest gap between buffers placed before it."""
    count = len(intervals)
    first, last, begin, end = (np.zeros(count, np.int64) for _ in range(4))
    offsets = [0] * count
    for placed, number in enumerate(sequence):
        piece = intervals[number]
        alive = (first[:placed] <= piece.last) & (last[:placed] >= piece.first)
        offset = _tightest_gap(begin[:placed][alive], end[:placed][alive], piece.size)
        first[placed], last[placed] = piece.first, piece.last
        begin[placed], end[placed] = offset, offset + piece.size
        offsets[number] = offset
    return Packing(offsets, int(end.max(initial=0)))


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
