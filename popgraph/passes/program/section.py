"""Sections of a program: steps in order, the storage that they write, copies around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import SSAValue

from popgraph.dialects.tile import LaunchOp
from popgraph.passes.program.pack_intervals import Interval
from popgraph.passes.program.storage import Storage, aligned, size_of
from popgraph.passes.program.workspace import CallStep, Preparation

Step: TypeAlias = LaunchOp | CallStep | Preparation
"""One unit of time in live ranges."""


@dataclass(frozen=True)
class Copy:
    """A copy of a value from one storage to another."""

    value: SSAValue
    source: Storage
    target: Storage


class Section:
    """`prepare` or `body` of a program: steps in order, copies before and after them."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.before: list[Copy] = []
        self.after: list[Copy] = []
        self.storages: list[Storage] = []

    @property
    def end(self) -> int:
        """The time of the copies after all steps."""
        return len(self.steps)

    def add(self, step: Step, results: Sequence[SSAValue] = ()) -> dict[SSAValue, Storage]:
        """Appends a step; returns new storage for its results."""
        made = {result: self.storage(size_of(result.type)) for result in results}
        self.steps.append(step)
        return made

    def storage(self, size: int) -> Storage:
        """New storage that the next step writes."""
        made = Storage("arena", aligned(size), first=self.end, last=self.end)
        self.storages.append(made)
        return made

    def join(self, pieces: Sequence[tuple[Storage, int]], size: int) -> Storage:
        """Storage that contains these pieces, each at a byte offset, and lives as long as any."""
        first = min(piece.first for piece, _ in pieces)
        whole = Storage("arena", size, first=first, last=max(piece.last for piece, _ in pieces))
        for piece, start in pieces:
            piece.alias_of, piece.start, piece.is_part = whole, start, len(pieces) > 1
        self.storages.append(whole)
        return whole

    def intervals(self) -> list[tuple[Storage, Interval]]:
        """The buffers of the arena with their live ranges."""
        return [
            (storage, Interval(storage.first, storage.last, storage.size))
            for storage in self.storages
            if storage.root is storage and storage.space == "arena"
        ]
