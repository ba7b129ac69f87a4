"""Liveness of arena memory: the bytes in use at each call of a program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Operation

from popgraph.dialects.tile.program.control import RunsPrograms
from popgraph.dialects.tile.program.ops import ALIGNMENT, BufferOp, CallOp, ProgramOp
from popgraph.dialects.tile.program.work import Counter, size, written


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
        if isinstance(call, CallOp):
            targets = written(counter.function(call.callee.string_value()))
        else:
            targets = call.written
        reads, writes = arena.nothing(), arena.nothing()
        for number, argument in enumerate(call.arguments):
            arena.mark(writes if number in targets else reads, argument.owner)
        used.append(arena.size(live | reads | writes))
        live = (live & ~writes) | reads
    return used[::-1]


class _Arena:
    """The arena in stretches that no buffer divides; a set of stretches is an array of booleans."""

    def __init__(self, program: ProgramOp) -> None:
        buffers = [op for op in program.body.block.ops if isinstance(op, BufferOp)]
        ends = {end for op in buffers if _is_arena(op) for end in _interval(op)}
        self._borders = np.array(sorted(ends | {0}), np.int64)
        self._sizes = np.diff(self._borders)

    def nothing(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.zeros(len(self._sizes), np.bool_)

    def mark(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]], buffer: object) -> None:
        if isinstance(buffer, BufferOp) and _is_arena(buffer):
            start, end = np.searchsorted(self._borders, _interval(buffer))
            chosen[start:end] = True

    def size(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
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
