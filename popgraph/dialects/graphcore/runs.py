"""Places along an axis that are known, as runs of equally far ones: what slices can have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import BroadcastOp, ConcatOp, SliceOp
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class Run:
    """Places that are equally far apart; no step stands for one place, again and again."""

    start: int
    step: int
    count: int

    def of(self, data: SSAValue, axis: int) -> Operand:
        sizes = list(shape_of(data))
        whole = [1] * len(sizes)
        starts = [0] * len(sizes)
        starts[axis], sizes[axis] = self.start, self.count if self.step else 1
        steps = [*whole[:axis], self.step or 1, *whole[axis + 1 :]]
        part: Operand = SliceOp(data, starts=starts, sizes=sizes, steps=steps)
        if self.step:
            return part
        return BroadcastOp(part, shape=[*sizes[:axis], self.count, *sizes[axis + 1 :]])


def in_pieces(data: SSAValue, places: Array, axis: int, most: int) -> Operand | None:
    """What is at a row of places, joined of so many pieces at most; nothing if that is too few."""
    runs = runs_of(places, most)
    if not runs:
        return None
    parts = [run.of(data, axis) for run in runs]
    return parts[0] if len(parts) == 1 else ConcatOp(parts, axis=axis)


def runs_of(places: Array, most: int) -> list[Run] | None:
    """A row of places as runs; nothing if there are more than so many."""
    found, at = list[Run](), 0
    while at < len(places):
        if len(found) == most:
            return None
        step = int(places[at + 1] - places[at]) if at + 1 < len(places) else 1
        breaks = np.flatnonzero(np.diff(places[at:]) != step)
        count = int(breaks[0]) + 1 if breaks.size else len(places) - at
        found.append(Run(int(places[at]), step, count))
        at += count
    for number in range(len(found) - 1):
        found[number : number + 2] = _shared_out(*found[number : number + 2])
    return found


def _shared_out(one: Run, other: Run) -> tuple[Run, Run]:
    """Two runs with the same places; the longer one has what may end one or begin the other."""
    begin = one.start + (one.count - 1) * one.step
    if one.count == 1 or one.count >= other.count or begin + other.step != other.start:
        return one, other
    return replace(one, count=one.count - 1), replace(other, start=begin, count=other.count + 1)
