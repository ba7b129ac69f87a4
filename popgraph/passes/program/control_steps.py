"""Writes the branches and loops of a plan as operations of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import MemRefType, i1, i8, i64
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.program import CallCondOp, CallLoopOp
from popgraph.dialects.tile import CondOp, LoopOp, PrepareProgramOp, ProgramOp
from popgraph.dialects.tile.loops.ops import memory_type
from popgraph.passes.program.storage import Storage
from popgraph.passes.program.workspace import (
    CallStep,
    Preparation,
    Workspace,
    persistent_sizes,
    scratch_bytes,
)


def memory_of(element: Attribute, size: int) -> MemRefType[Attribute]:
    """The type of one-dimensional memory of `size` elements."""
    return MemRefType(element, [size])


COUNTER, FLAG = memory_of(i64, 1), memory_of(i1, 1)


@dataclass(frozen=True)
class ControlWriter:
    """Writes the operations that run other programs."""

    buffer: Callable[[Storage, Attribute], SSAValue]
    """The memref of a storage with a type."""
    of: Callable[[SSAValue], SSAValue]
    """The memref of a value."""
    programs: Mapping[str, ProgramOp]

    def preparation(self, step: Preparation) -> PrepareProgramOp:
        """The operation that prepares a program."""
        scratch, persistent = self._memory([step.program], step.workspace)
        return PrepareProgramOp(step.program, scratch, persistent)

    def call(self, step: CallStep) -> CondOp | LoopOp:
        """The operation for a branch or a loop."""
        made = (
            self._loop(step.op, step.workspace)
            if isinstance(step.op, CallLoopOp)
            else self._cond(step.op, step.workspace)
        )
        made.location = step.op.location
        return made

    def _loop(self, op: CallLoopOp, workspace: Workspace) -> LoopOp:
        assert workspace.counter is not None, "a loop has a counter"
        next_go = workspace.next_go
        scratch, persistent = self._memory(op.graphs, workspace)
        (program,) = op.graphs
        return LoopOp(
            program,
            op.turns,
            reverse=op.reverse is not None,
            turn=self.buffer(workspace.counter, COUNTER),
            go=None if op.go is None else self.of(op.go),
            next_go=None if next_go is None else self.buffer(next_go, FLAG),
            limit=None if op.limit is None else self.of(op.limit),
            carried=self._all(op.carried),
            scanned=self._all(op.scanned),
            captured=self._all(op.captured),
            finals=self._all(op.finals),
            spares=[
                self.buffer(spare, memory_type(value))
                for spare, value in zip(workspace.spares, op.finals, strict=True)
            ],
            stacked=self._all(op.stacked),
            scratch=scratch,
            persistent=persistent,
        )

    def _cond(self, op: CallCondOp, workspace: Workspace) -> CondOp:
        memory = self._memory(op.graphs, workspace)
        return CondOp(
            op.graphs,
            self.of(op.predicate),
            self._all(op.captured),
            self._all(op.outputs),
            *memory,
        )

    def _all(self, values: Iterable[SSAValue]) -> list[SSAValue]:
        return [self.of(value) for value in values]

    def _memory(
        self, names: Sequence[str], workspace: Workspace
    ) -> tuple[SSAValue | None, list[SSAValue]]:
        """Scratch memory for the programs, and the persistent memory of each that has any."""
        programs = [self.programs[name] for name in names]
        size = scratch_bytes(programs)
        scratch = workspace.scratch
        made = None if scratch is None else self.buffer(scratch, memory_of(i8, size))
        held = zip(workspace.persistent, persistent_sizes(programs), strict=True)
        return made, [self.buffer(piece, memory_of(i8, size)) for piece, size in held]
