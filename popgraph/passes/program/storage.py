"""Storage: the pieces of memory of a plan, with their lifetimes, aliases and offsets."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.attributes import memory_span
from popgraph.dialects.tile.program.ops import ALIGNMENT

BEFORE = -1
"""The time of copies that are made before the first launch."""


@dataclass(eq=False)
class Storage:
    """One piece of memory. Times are numbers of launches."""

    space: str
    size: int = 0
    label: str = ""
    literal: Attribute | None = None
    offset: int = 0
    first: int = BEFORE
    last: int = BEFORE
    readers: list[int] = field(default_factory=list)
    alias_of: Storage | None = None
    """The storage whose memory this one has taken over in place, or is a part of."""
    start: int = 0
    """The byte of that storage where this one begins; none has an offset of its own then."""

    @property
    def root(self) -> Storage:
        """The storage whose memory this is; the way there is short the next time."""
        way, storage = list[Storage](), self
        while storage.alias_of is not None:
            way.append(storage)
            storage = storage.alias_of
        start = 0
        for passed in reversed(way):
            start += passed.start
            passed.alias_of, passed.start = storage, start
        return storage

    @property
    def place(self) -> int:
        """Where in its space it begins."""
        return self.root.offset + self.start

    is_part: bool = False
    """Whether it is one of several pieces of another storage."""

    def read(self, time: int) -> None:
        self.readers.append(time)
        self.root.last = max(self.root.last, time)


def size_of(type_: Attribute) -> int:
    """The bytes behind a tensor, with what aligns what follows."""
    assert isinstance(type_, TensorType)
    return aligned(memory_span(type_)[1] * element_bytes(type_))


def aligned(size: int) -> int:
    """A number of bytes, rounded up so that whatever follows is aligned."""
    return -(-size // ALIGNMENT) * ALIGNMENT
