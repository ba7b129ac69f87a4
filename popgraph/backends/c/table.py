"""What memory is a program called with? One table of pointers; nothing here knows IR or C."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.dialects.program.attributes import BlobAttr, DataAttr
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class Slot:
    """One entry of the table of memory that a program is called with."""

    space: str
    """threads, arena, persistent, constant, input, output or variable."""
    label: str
    dtype: DType | None = None
    shape: Shape = ()
    literal: DataAttr | BlobAttr | None = None
    """The elements of a constant, the first value of a variable."""
    prepared: bool = False
    """Only `prepare` reads it."""


THREADS, ARENA, PERSISTENT = Slot("threads", ""), Slot("arena", ""), Slot("persistent", "")


@dataclass(frozen=True)
class Table:
    """What memory a program is called with: all that is needed to run its library."""

    slots: tuple[Slot, ...]
    arena: int
    """In bytes."""
    persistent: int
    """In bytes; `prepare` fills it."""

    def named(self, space: str) -> dict[str, int]:
        """The slots of all inputs, outputs or variables by name."""
        return {slot.label: i for i, slot in enumerate(self.slots) if slot.space == space}
