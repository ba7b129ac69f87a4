"""Contents of memory: the value that each byte belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, OpResult, SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import ConstantOp, PrepareOp, VariableOp, YieldOp
from popgraph.dialects.tile import AssembleOp, ViewOp
from popgraph.dialects.tile.affine import row_major
from popgraph.dialects.tile.attributes import halo_of, memory_span, physical_shape
from popgraph.passes.validation.forms import Numbers
from popgraph.passes.validation.runs import NOTHING, Runs

Owner: TypeAlias = object
"""A value that no view or concatenation defines; equal literals are one owner."""


@dataclass(frozen=True)
class Held:
    """
    The contents of a memory: bytes `starts[i] .. ends[i] - 1` are those of `owners[i]`.

    Byte `b` of the memory is byte `b - shifts[i]` of the owner. Sorted, without overlaps.
    """

    starts: Numbers
    ends: Numbers
    owners: Numbers
    shifts: Numbers

    @staticmethod
    def of(runs: Runs, owner: int) -> Held:
        """These bytes of an owner, each at its own position."""
        size = len(runs.starts)
        return Held(runs.starts, runs.ends, np.full(size, owner), np.zeros(size, np.int64))

    def shifted(self, by: int) -> Held:
        """The same bytes at another position."""
        return Held(self.starts + by, self.ends + by, self.owners, self.shifts + by)

    def at(self, points: Numbers) -> tuple[Numbers, Numbers]:
        """The owner of each of these bytes, -1 for none, and its shift."""
        if not len(self.starts):
            return np.full(len(points), -1), np.zeros(len(points), np.int64)
        place = np.searchsorted(self.starts, points, side="right") - 1
        inside = (place >= 0) & (points < self.ends[place])
        return np.where(inside, self.owners[place], -1), np.where(inside, self.shifts[place], 0)

    def within(self, start: int, end: int) -> Held:
        """Bytes `start .. end - 1`."""
        starts, ends = np.maximum(self.starts, start), np.minimum(self.ends, end)
        kept = starts < ends
        return Held(starts[kept], ends[kept], self.owners[kept], self.shifts[kept])

    def overwritten(self, runs: Runs, new: Held) -> Held:
        """Without these bytes, and with `new` instead, which holds none of the others."""
        ends = [self.starts, self.ends, runs.starts, runs.ends]
        points = np.unique(np.concatenate(ends))
        if not len(points):
            return new
        owners, shifts = self.at(points[:-1])
        removed, _ = Held.of(runs, 0).at(points[:-1])
        kept = (owners >= 0) & (removed < 0)
        left = Held(points[:-1][kept], points[1:][kept], owners[kept], shifts[kept])
        return joined([left, new])


def joined(parts: Sequence[Held]) -> Held:
    """The union of contents without common bytes."""
    starts, ends, owners, shifts = (
        np.concatenate([getattr(one, name) for one in parts] or [_NONE])
        for name in ("starts", "ends", "owners", "shifts")
    )
    order = np.argsort(starts, kind="stable")
    starts, ends, owners, shifts = starts[order], ends[order], owners[order], shifts[order]
    if not len(starts):
        return Held(starts, ends, owners, shifts)
    new = (starts[1:] != ends[:-1]) | (owners[1:] != owners[:-1]) | (shifts[1:] != shifts[:-1])
    first, last = np.append(True, new), np.append(new, True)
    return Held(starts[first], ends[last], owners[first], shifts[first])


_NONE = np.zeros(0, np.int64)
NO_CONTENTS = Held(_NONE, _NONE, _NONE, _NONE)


def wrong(expected: Held, found: Held) -> tuple[Runs, Numbers]:
    """The bytes of `expected` that `found` does not hold, and the owner of each run in `found`."""
    points = np.unique(np.concatenate([expected.starts, expected.ends, found.starts, found.ends]))
    if not len(points):
        return NOTHING, _NONE
    wanted, wanted_shift = expected.at(points[:-1])
    owner, shift = found.at(points[:-1])
    bad = (wanted >= 0) & ((owner != wanted) | (shift != wanted_shift))
    return Runs(points[:-1][bad], points[1:][bad]), owner[bad]


def size_of(value: SSAValue) -> int:
    """The bytes of a value's memory, as kernels see it."""
    return memory_span(type_of(value))[1] * element_bytes(value.type)


def type_of(value: SSAValue) -> TensorType[Attribute]:
    assert isinstance(value.type, TensorType)
    return value.type


def pieces_of(op: AssembleOp) -> Iterator[tuple[SSAValue, int | None]]:
    """
    Each piece of a concatenation with the byte of the whole at which its memory begins.

    None if the elements of the piece are not at a constant distance from those of the whole. This
    is derived from the layouts alone, not by the analysis that `plan-memory` uses.
    """
    whole = type_of(op.output)
    halo = halo_of(whole)
    for piece, offsets, steps in op.placements():
        type_ = type_of(piece)
        own = halo_of(type_)
        if halo is None or own is None:
            yield piece, None
            continue
        outer, inner = row_major(physical_shape(whole)), row_major(physical_shape(type_))
        fits = all(
            size < 2 or inner[dim] == outer[dim] * steps[dim]
            for dim, size in enumerate(type_.get_shape())
        )
        at = sum((low + o) * s for low, o, s in zip(halo.low, offsets, outer, strict=True))
        first = sum(low * stride for low, stride in zip(own.low, inner, strict=True))
        start = at - memory_span(whole)[0] - (first - memory_span(type_)[0])
        yield piece, start * element_bytes(type_) if fits else None


class Contents:
    """The correct contents of the memory of each value of a graph."""

    def __init__(self, written: Callable[[SSAValue], Runs]) -> None:
        self._written = written
        """The written elements of each value."""
        self._known: dict[SSAValue, Held] = {}
        self._numbers: dict[Owner, int] = {}
        self._owners: list[Owner] = []

    def number(self, owner: Owner) -> int:
        """The number of an owner."""
        if owner not in self._numbers:
            self._numbers[owner] = len(self._owners)
            self._owners.append(owner)
        return self._numbers[owner]

    def owner(self, number: int) -> Owner:
        """The owner with a number."""
        return self._owners[number]

    def of(self, value: SSAValue) -> Held:
        """The owners of the written bytes of a value's memory."""
        waiting = [value]
        while waiting:
            one = waiting[-1]
            if one in self._known:
                waiting.pop()
            elif missing := [base for base in _bases(one) if base not in self._known]:
                waiting += missing
            else:
                self._known[waiting.pop()] = self._own(one)
        return self._known[value]

    def _own(self, value: SSAValue) -> Held:
        match value.owner:
            case ViewOp():
                return self._known[value.owner.source]
            case PrepareOp():
                return self._known[_yielded(value)]
            case AssembleOp():
                return joined(
                    [
                        self._known[piece].shifted(start)
                        for piece, start in pieces_of(value.owner)
                        if start is not None
                    ]
                )
        runs = self._written(value).scaled(element_bytes(value.type))
        return Held.of(runs, self.number(owner_of(value)))


def owner_of(value: SSAValue) -> Owner:
    """The owner of a value that no view or concatenation defines."""
    match value.owner:
        case ConstantOp():
            return "constant", value.owner.literal
        case VariableOp():
            return "variable", value.owner.variable.text
    return value


def _bases(value: SSAValue) -> Sequence[SSAValue]:
    match value.owner:
        case ViewOp():
            return [value.owner.source]
        case PrepareOp():
            return [_yielded(value)]
        case AssembleOp():
            return list(value.owner.pieces)
    return ()


def _yielded(value: SSAValue) -> SSAValue:
    """The value inside a `pg.prepare` that one of its results is."""
    op = value.owner
    assert isinstance(op, PrepareOp)
    last = op.body.block.last_op
    assert isinstance(last, YieldOp)
    assert isinstance(value, OpResult)
    return last.values[value.index]
