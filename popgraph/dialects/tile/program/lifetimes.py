"""Liveness of arena memory: the bytes in use at each call of a program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from xdsl.ir import Operation

from popgraph.dialects.tile.program.ops import ALIGNMENT, BufferOp, CallOp, ProgramOp
from popgraph.dialects.tile.program.program_control import RunsPrograms
from popgraph.dialects.tile.program.work import Counter, size, written

Chosen: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""A set of stretches of the arena, as a mask."""


def calls(program: ProgramOp) -> list[CallOp | RunsPrograms]:
    """The calls of one step, in order."""
    return [op for op in program.body.block.ops if isinstance(op, CallOp | RunsPrograms)]


def bytes_in_use(program: ProgramOp, counter: Counter) -> list[int]:
    """
    The live arena bytes at each call of a step.

    Live are the operands and results of the call, and memory that a later call reads before it is
    written again.
    """
    arena = ArenaMap(program)
    live = arena.nothing()
    used: list[int] = []
    # Backwards: memory is live from its last read up to the write before it.
    for call in reversed(calls(program)):
        reads, writes = arena.touched(call, counter)
        used.append(arena.size(live | reads | writes))
        live = (live & ~writes) | reads
    return used[::-1]


def arena_bytes(program: ProgramOp) -> int:
    """The bytes of the arena that steps use; `prepare` may use more."""
    buffers = [op for op in program.body.walk() if isinstance(op, BufferOp) and _is_arena(op)]
    return max((_interval(op)[1] for op in buffers), default=0)


@dataclass(frozen=True)
class Lifetime:
    """A range of the arena, from the call that writes it to the last call that reads it."""

    offset: int
    size: int
    first: int
    last: int


def lifetimes(program: ProgramOp, counter: Counter) -> list[Lifetime]:
    """
    The lifetimes of arena memory, as ranges that are written together and live equally long.

    The ranges alive at a call add up to its `bytes_in_use`. A call that overwrites its input ends
    one range and begins another.
    """
    arena = ArenaMap(program)
    spans: list[list[tuple[int, int]]] = [[] for _ in arena.stretches]
    for number, call in enumerate(calls(program)):
        reads, writes = arena.touched(call, counter)
        for at in np.flatnonzero(reads):
            first = spans[at].pop()[0] if spans[at] else number
            spans[at].append((first, number))
        for at in np.flatnonzero(writes):
            spans[at].append((number, number))
    found: list[Lifetime] = []
    open_: dict[tuple[int, int], int] = {}
    for (start, end), held in zip(arena.stretches, spans, strict=True):
        known, open_ = open_, {}
        for span in dict.fromkeys(held):
            if span in known:
                place = known[span]
                found[place] = replace(found[place], size=end - found[place].offset)
            else:
                place = len(found)
                found.append(Lifetime(start, end - start, *span))
            open_[span] = place
    return found


def written_by(call: CallOp | RunsPrograms, counter: Counter) -> Collection[int]:
    """The numbers of the arguments that a call writes."""
    if isinstance(call, CallOp):
        return written(counter.function(call.callee.string_value()))
    return call.written


class ArenaMap:
    """The arena, cut into stretches at all buffer bounds; sets of stretches are boolean arrays."""

    def __init__(self, program: ProgramOp) -> None:
        buffers = [op for op in program.body.block.ops if isinstance(op, BufferOp)]
        ends = {end for op in buffers if _is_arena(op) for end in _interval(op)}
        self._borders = np.array(sorted(ends | {0}), np.int64)
        self._sizes = np.diff(self._borders)

    def nothing(self) -> Chosen:
        return np.zeros(len(self._sizes), np.bool_)

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The first byte of each stretch, and the one after it."""
        return list(pairwise(map(int, self._borders)))

    def touched(self, call: CallOp | RunsPrograms, counter: Counter) -> tuple[Chosen, Chosen]:
        """Masks of the stretches that a call reads and writes."""
        targets = written_by(call, counter)
        reads, writes = self.nothing(), self.nothing()
        for number, argument in enumerate(call.arguments):
            self.mark(writes if number in targets else reads, argument.owner)
        return reads, writes

    def mark(self, chosen: Chosen, buffer: object) -> None:
        if isinstance(buffer, BufferOp) and _is_arena(buffer):
            start, end = np.searchsorted(self._borders, _interval(buffer))
            chosen[start:end] = True

    def size(self, chosen: Chosen) -> int:
        return int(self._sizes[chosen].sum())


def _is_arena(op: BufferOp) -> bool:
    return op.space.data == "arena"


def _interval(op: BufferOp) -> tuple[int, int]:
    start = op.offset.value.data
    return start, -(-(start + size(op.memory.type)) // ALIGNMENT) * ALIGNMENT


def bytes_moved(program: ProgramOp, counter: Counter) -> int:
    """The bytes that all calls of a step touch: of the larger branch, of all iterations."""
    return sum(_moved(call, counter) for call in calls(program))


def _moved(call: CallOp | RunsPrograms, counter: Counter) -> int:
    if isinstance(call, RunsPrograms):
        bodies = [bytes_moved(counter.program(name), counter) for name in call.programs]
        return max(bodies) * call.repetitions
    return bytes_touched([value.owner for value in call.arguments])


def bytes_touched(arguments: Sequence[Operation | object]) -> int:
    """The total size of distinct buffers: the traffic of a call that reads each byte once."""
    buffers = {op for op in arguments if isinstance(op, BufferOp)}
    return sum(size(op.memory.type) for op in buffers)
