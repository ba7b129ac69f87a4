"""Liveness of arena memory: the bytes in use at each call of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from xdsl.ir import Operation

from popgraph.dialects.tile.program.control import RunsPrograms
from popgraph.dialects.tile.program.ops import ALIGNMENT, BufferOp, CallOp, ProgramOp
from popgraph.dialects.tile.program.work import Counter, size, written

Chosen: TypeAlias = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""A set of stretches of the arena."""


def calls(program: ProgramOp) -> list[CallOp | RunsPrograms]:
    """What one step runs, in order."""
    return [op for op in program.body.block.ops if isinstance(op, CallOp | RunsPrograms)]


def bytes_in_use(program: ProgramOp, counter: Counter) -> list[int]:
    """
    For each call of a step, the bytes of the arena that hold something then.

    That is what the call reads and writes, and what a later call reads before it is written again.
    """
    arena = _Arena(program)
    live = arena.nothing()
    used: list[int] = []
    for call in reversed(calls(program)):
        reads, writes = arena.touched(call, counter)
        used.append(arena.size(live | reads | writes))
        live = (live & ~writes) | reads
    return used[::-1]


@dataclass(frozen=True)
class Lifetime:
    """A piece of the arena, from the call that writes it to the last one that reads it."""

    offset: int
    size: int
    first: int
    last: int


def lifetimes(program: ProgramOp, counter: Counter) -> list[Lifetime]:
    """
    What the arena holds when: pieces that were written together and are needed as long.

    What is alive at a call covers its `bytes_in_use`: a call that writes where it reads ends one
    piece and begins another.
    """
    arena = _Arena(program)
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


class _Arena:
    """The arena in stretches that no buffer divides; a set of stretches is an array of booleans."""

    def __init__(self, program: ProgramOp) -> None:
        buffers = [op for op in program.body.block.ops if isinstance(op, BufferOp)]
        ends = {end for op in buffers if _is_arena(op) for end in _interval(op)}
        self._borders = np.array(sorted(ends | {0}), np.int64)
        self._sizes = np.diff(self._borders)

    def nothing(self) -> Chosen:
        return np.zeros(len(self._sizes), np.bool_)

    @property
    def stretches(self) -> list[tuple[int, int]]:
        """The first byte of each, and the one behind it."""
        return list(pairwise(map(int, self._borders)))

    def touched(self, call: CallOp | RunsPrograms, counter: Counter) -> tuple[Chosen, Chosen]:
        """What a call reads, and what it writes."""
        if isinstance(call, CallOp):
            targets = written(counter.function(call.callee.string_value()))
        else:
            targets = call.written
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
    """What all calls of a step touch; of branches the larger, of loops all turns."""
    return sum(_moved(call, counter) for call in calls(program))


def _moved(call: CallOp | RunsPrograms, counter: Counter) -> int:
    if isinstance(call, RunsPrograms):
        bodies = [bytes_moved(counter.program(name), counter) for name in call.programs]
        return max(bodies) * call.repetitions
    return bytes_touched([value.owner for value in call.arguments])


def bytes_touched(arguments: Sequence[Operation | object]) -> int:
    """The sizes of different buffers, together: what a call moves if it reads each byte once."""
    buffers = {op for op in arguments if isinstance(op, BufferOp)}
    return sum(size(op.memory.type) for op in buffers)
