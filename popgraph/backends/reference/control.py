"""Interprets branches and loops of a planned program, on their planned memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from xdsl.ir import SSAValue

from popgraph.backends.reference.memory import Bytes
from popgraph.dialects import tile
from popgraph.dialects.program.control import Branching, Looping
from popgraph.support.arrays import Array

Memories = Mapping[SSAValue, Array]
"""The memory of each memref, as a flat array."""


@dataclass(frozen=True)
class Workspace:
    """The memory that a caller provides to a program."""

    arena: Bytes
    persistent: Bytes


class Callee(Protocol):
    """A program that runs on its caller's memory."""

    @property
    def has_persistent(self) -> bool: ...

    def prepare_on(self, arena: Bytes, persistent: Bytes) -> None: ...

    def run_on(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], workspace: Workspace
    ) -> None: ...


def run_programs(op: tile.RunsPrograms, programs: Sequence[Callee], memories: Memories) -> None:
    """One step that runs other programs."""
    workspaces = list(_workspaces(op, programs, memories))
    match op:
        case tile.PrepareProgramOp():
            programs[0].prepare_on(workspaces[0].arena, workspaces[0].persistent)
        case tile.CondOp():
            chosen = 0 if _first(op.predicate[0], memories) else 1
            captured, outputs = _rows(op.captured, memories), _rows(op.outputs, memories)
            programs[chosen].run_on(
                dict(zip(Branching.input_names(len(captured)), captured, strict=True)),
                dict(zip(Branching.output_names(len(outputs)), outputs, strict=True)),
                workspaces[chosen],
            )
        case tile.LoopOp():
            _run_loop(op, programs[0], workspaces[0], memories)


def _workspaces(
    op: tile.RunsPrograms, programs: Sequence[Callee], memories: Memories
) -> Iterable[Workspace]:
    """The memory of each program; all share one arena."""
    nothing = np.zeros(0, np.uint8)
    arena = next(iter(_rows(op.group("scratch"), memories)), nothing).view(np.uint8)
    held = iter(_rows(op.group("persistent"), memories))
    for program in programs:
        yield Workspace(arena, next(held).view(np.uint8) if program.has_persistent else nothing)


def _run_loop(op: tile.LoopOp, program: Callee, workspace: Workspace, memories: Memories) -> None:
    carried, finals = _rows(op.carried, memories), _rows(op.finals, memories)
    spares, captured = _rows(op.spares, memories), _rows(op.captured, memories)
    (number,) = _rows(op.turn, memories)
    scanned = [_by_iteration(op, row) for row in _rows(op.scanned, memories)]
    stacked = [_by_iteration(op, row) for row in _rows(op.stacked, memories)]
    input_names = Looping.input_names(len(carried), len(scanned), len(captured))
    output_names = Looping.output_names(op.go is not None, len(carried), len(stacked))
    trips, go = op.turns, True
    if op.limit is not None:
        trips = min(trips, int(_first(op.limit, memories)))
    if op.go is not None:
        go = bool(_first(op.go, memories))
    if op.ends_early:
        for rows in stacked:
            rows[...] = 0
    targets = [finals, spares]
    if not op.ends_early and trips % 2 == 0:
        targets.reverse()
    iteration = 0
    while go and iteration < trips:
        at = op.turns - 1 - iteration if op.reverse is not None else iteration
        number[0] = at
        target = targets[iteration % 2]
        given = [number, *carried, *(rows[at] for rows in scanned), *captured]
        next_go = _rows(op.group("next_go"), memories)
        made = [*next_go, *target, *(rows[at] for rows in stacked)]
        program.run_on(
            dict(zip(input_names, given, strict=True)),
            dict(zip(output_names, made, strict=True)),
            workspace,
        )
        go = all(bool(row[0]) for row in next_go)
        carried = target
        iteration += 1
    for final, last in zip(finals, carried, strict=True):
        final[...] = last


def _rows(values: Iterable[SSAValue], memories: Memories) -> list[Array]:
    return [memories[value] for value in values]


def _first(value: SSAValue, memories: Memories) -> np.generic:
    first: np.generic = memories[value].reshape(-1)[0]
    return first


def _by_iteration(op: tile.LoopOp, row: Array) -> Array:
    """A flat array as one row per iteration."""
    return row.reshape(op.turns, row.size // op.turns if op.turns else 0)
