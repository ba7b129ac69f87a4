"""Constant positions along an axis as arithmetic runs, so that slices can read them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import BroadcastOp, ConcatOp, SliceOp
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class Run:
    """Positions `start + i * step` for i < count; step 0 repeats one position."""

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


def gathered_by_slices(data: SSAValue, places: Array, axis: int, most: int) -> Operand | None:
    """The elements at `places`, from at most `most` slices; None if more are necessary."""
    runs = runs_of(places, most)
    if not runs:
        return None
    parts = [run.of(data, axis) for run in runs]
    return parts[0] if len(parts) == 1 else ConcatOp(parts, axis=axis)


def runs_of(places: Array, most: int) -> list[Run] | None:
    """Splits positions into at most `most` runs; None if more are necessary."""
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
        found[number : number + 2] = _rebalanced(*found[number : number + 2])
    return found


def _rebalanced(one: Run, other: Run) -> tuple[Run, Run]:
    """Moves a shared end of two runs to the longer one."""
    begin = one.start + (one.count - 1) * one.step
    if one.count == 1 or one.count >= other.count or begin + other.step != other.start:
        return one, other
    return replace(one, count=one.count - 1), replace(other, start=begin, count=other.count + 1)
