"""Into how many chunks does a kernel fall, for threads to share?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GRAIN = 16 * 1024
"""Work below this (in elements touched) is not worth handing to another thread."""

LANE_WORK = 8
"""So many multiplications count as much as touching one element."""

MOST = 16
"""Enough that a thread that starts late takes fewer, few enough to cost nothing."""


@dataclass(frozen=True)
class Split:
    """`count` chunks of `size` steps along loop number `position`; the last may be shorter."""

    position: int
    count: int
    size: int


def split(extents: Sequence[int], work: int, step: Sequence[int] | None = None) -> Split | None:
    """
    How to share loops of these extents, which do `work` in all; None when not worth it.

    `step` is what each loop advances by; chunks are whole steps.
    """
    wanted = min(MOST, work // GRAIN)
    if wanted < 2 or not extents:
        return None
    units = [
        -(-extent // by) for extent, by in zip(extents, step or [1] * len(extents), strict=True)
    ]
    position = next((at for at, unit in enumerate(units) if unit >= 8), None)
    if position is None:
        position = max(range(len(units)), key=lambda at: units[at])
    unit = units[position]
    even = [
        count
        for count in range(2, min(unit, 2 * wanted) + 1)
        if unit % count == 0 and 2 * count >= wanted
    ]
    count = min(even, key=lambda count: abs(count - wanted)) if even else min(unit, wanted)
    size = -(-unit // count)
    if size >= unit:
        return None
    return Split(position, -(-unit // size), size * (step[position] if step else 1))
