"""Workspaces: memory of the caller that a branch or a loop uses while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from popgraph.dialects.program import CallCondOp, CallLoopOp
from popgraph.dialects.tile import ProgramOp
from popgraph.passes.program.storage import Storage

Call: TypeAlias = CallCondOp | CallLoopOp


@dataclass
class Workspace:
    """The memory of a branch or a loop besides its operands and results."""

    scratch: Storage | None = None
    persistent: list[Storage] = field(default_factory=list)
    counter: Storage | None = None
    next_go: Storage | None = None
    spares: list[Storage] = field(default_factory=list)


@dataclass(frozen=True)
class CallStep:
    """A branch or a loop as a step of a section."""

    op: Call
    workspace: Workspace


@dataclass(frozen=True)
class Preparation:
    """The step that fills the persistent memory of a program."""

    program: str
    workspace: Workspace


def scratch_bytes(programs: Iterable[ProgramOp]) -> int:
    """Bytes of the largest arena of programs that run one at a time."""
    return max((program.arena.value.data for program in programs), default=0)


def persistent_sizes(programs: Iterable[ProgramOp]) -> Iterator[int]:
    """The bytes of persistent memory of each program that has any."""
    return (size for one in programs if (size := one.persistent.value.data))
