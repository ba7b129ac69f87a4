"""Branches and loops of a plan: the memory that they need, and the operations that they become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from xdsl.dialects.builtin import MemRefType, i1, i8, i64
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.program import CallCondOp, CallLoopOp, GraphOp
from popgraph.dialects.program.control import called_graphs
from popgraph.dialects.tile import CondOp, LoopOp, PrepareProgramOp, ProgramOp, RunsPrograms
from popgraph.dialects.tile.loops.ops import memory_type

Call: TypeAlias = CallCondOp | CallLoopOp

Memory = TypeVar("Memory")
"""How a plan names a piece of memory."""


@dataclass
class Workspace(Generic[Memory]):
    """The memory that a call of programs needs beside what it reads and what it gives."""

    scratch: Memory | None = None
    persistent: list[Memory] = field(default_factory=list)
    turn: Memory | None = None
    next_go: Memory | None = None
    spares: list[Memory] = field(default_factory=list)


@dataclass(frozen=True)
class Preparation(Generic[Memory]):
    """The step that fills the persistent memory of a program."""

    program: str
    workspace: Workspace[Memory]


def memory_of(element: Attribute, size: int) -> MemRefType[Attribute]:
    """Memory of so many elements in one row."""
    return MemRefType(element, [size])


TURN, TRUTH = memory_of(i64, 1), memory_of(i1, 1)


def scratch_bytes(programs: Iterable[ProgramOp]) -> int:
    """The arena that programs need of which one runs at a time."""
    return max((program.arena.value.data for program in programs), default=0)


def callees_first(graphs: Sequence[GraphOp]) -> list[GraphOp]:
    """The graphs of a module, each behind those that it calls."""
    known = {graph.sym_name.data: graph for graph in graphs}
    ordered: dict[str, GraphOp] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            for callee in calls_in(known[name]):
                visit(callee)
            ordered[name] = known[name]

    for name in known:
        visit(name)
    return list(ordered.values())


def calls_in(graph: GraphOp) -> list[str]:
    """The graphs that a graph calls, each once, in order."""
    return list(dict.fromkeys(name for op in graph.walk() for name in called_graphs(op)))


@dataclass(frozen=True)
class Writer(Generic[Memory]):
    """Writes the operations of calls; `buffer` gives the memref of a piece under a type."""

    buffer: Callable[[Memory, Attribute], SSAValue]
    of: Callable[[SSAValue], SSAValue]
    """The memref of a value."""
    programs: Mapping[str, ProgramOp]

    def step(self, step: Call | Preparation[Memory], workspace: Workspace[Memory]) -> RunsPrograms:
        """The operation for a call, or for the preparation of a program."""
        match step:
            case CallLoopOp():
                return self._loop(step, workspace)
            case CallCondOp():
                return self._cond(step, workspace)
        scratch, persistent = self._memory([step.program], workspace)
        return PrepareProgramOp(step.program, scratch, persistent)

    def _loop(self, op: CallLoopOp, workspace: Workspace[Memory]) -> LoopOp:
        assert workspace.turn is not None, "a loop counts its turns"
        next_go = workspace.next_go
        scratch, persistent = self._memory(op.graphs, workspace)
        (program,) = op.graphs
        return LoopOp(
            program,
            op.turns,
            reverse=op.reverse is not None,
            turn=self.buffer(workspace.turn, TURN),
            go=None if op.go is None else self.of(op.go),
            next_go=None if next_go is None else self.buffer(next_go, TRUTH),
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

    def _cond(self, op: CallCondOp, workspace: Workspace[Memory]) -> CondOp:
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
        self, names: Sequence[str], workspace: Workspace[Memory]
    ) -> tuple[SSAValue | None, list[SSAValue]]:
        """Scratch memory, and the persistent memory of those programs that have any."""
        programs = [self.programs[name] for name in names]
        size = scratch_bytes(programs)
        scratch = workspace.scratch
        made = None if scratch is None else self.buffer(scratch, memory_of(i8, size))
        held = zip(workspace.persistent, persistent_sizes(programs), strict=True)
        return made, [self.buffer(piece, memory_of(i8, size)) for piece, size in held]


def persistent_sizes(programs: Iterable[ProgramOp]) -> Iterator[int]:
    """The bytes of persistent memory of each program that has any."""
    return (size for one in programs if (size := one.persistent.value.data))
