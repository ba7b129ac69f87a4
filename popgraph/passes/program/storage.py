"""Storage: the buffers of a plan, with live ranges, aliases and offsets."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.attributes import memory_span
from popgraph.dialects.tile.program.ops import ALIGNMENT

BEFORE = -1
"""The time of copies before the first step."""


@dataclass(eq=False)
class Storage:
    """One buffer. Times are positions of steps in a section."""

    space: str
    size: int = 0
    label: str = ""
    literal: Attribute | None = None
    offset: int = 0
    first: int = BEFORE
    last: int = BEFORE
    readers: list[int] = field(default_factory=list)
    alias_of: Storage | None = None
    """The storage whose memory this one shares: it works in place, or it is a slice."""
    start: int = 0
    """The byte offset in `alias_of`; `offset` is unused then."""

    @property
    def root(self) -> Storage:
        """The storage that owns the memory, found by union-find with path compression."""
        # Not recursive: 1,500 launches in place are a chain longer than Python's stack.
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
    def byte_offset(self) -> int:
        """The byte offset in its space."""
        return self.root.offset + self.start

    is_part: bool = False
    """Whether it is one of several slices of another storage."""

    def read(self, time: int) -> None:
        self.readers.append(time)
        self.root.last = max(self.root.last, time)


def size_of(type_: Attribute) -> int:
    """Bytes of the memory of a tensor, rounded up to the alignment."""
    assert isinstance(type_, TensorType)
    return aligned(memory_span(type_)[1] * element_bytes(type_))


def aligned(size: int) -> int:
    """A number of bytes, rounded up so that the next buffer is aligned, too."""
    return -(-size // ALIGNMENT) * ALIGNMENT
