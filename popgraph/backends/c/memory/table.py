"""The table of memory slots that a program is called with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from popgraph.support.array_bytes import array_of_memory
from popgraph.support.arrays import Array, ArrayStore
from popgraph.support.dtypes import BY_NAME, DType
from popgraph.support.index_checks import IndexCheck
from popgraph.support.shapes import Shape, text
from popgraph.support.sizes import Size


@dataclass(frozen=True)
class Literal:
    """The elements of a constant, or the initial value of a variable."""

    dtype: DType
    shape: Shape
    data: bytes = b""
    """The elements of a small literal."""
    key: str = ""
    """The key of a large literal in an `ArrayStore`."""

    def array(self, store: ArrayStore) -> Array:
        """The elements; read-only by convention."""
        if self.key:
            return store.held(self.key, f"{self.dtype.name} {text(self.shape)}")
        return array_of_memory(self.data, self.dtype.numpy, self.shape)


@dataclass(frozen=True)
class Slot:
    """One entry of the table of memory that a program is called with."""

    space: str
    """threads, arena, persistent, packing, constant, input, output or variable."""
    label: str
    """A name, or a packing's key."""
    dtype: DType | None = None
    shape: Shape = ()
    literal: Literal | None = None
    prepared: bool = False
    """Whether only `prepare` reads it."""
    sources: tuple[int, ...] = ()
    """The slots of the constants that a packing is filled from."""


THREADS, ARENA, PERSISTENT = Slot("threads", ""), Slot("arena", ""), Slot("persistent", "")


def packed(key: str, size: int, sources: tuple[int, ...]) -> Slot:
    """The slot of packed weights; `prepare` fills it unless another program has done so."""
    return Slot("packing", key, BY_NAME["u8"], (size,), sources=sources)


@dataclass(frozen=True)
class Table:
    """The memory of a program: all that is needed to run its library."""

    slots: tuple[Slot, ...]
    arena: int
    """Bytes of scratch memory."""
    persistent: int
    """Bytes of memory that `prepare` fills."""
    checks: tuple[IndexCheck, ...] = ()
    """The checks of indices, in hidden outputs."""
    donations: Mapping[str, str] = field(default_factory=dict)
    """The output that may overwrite each donatable input."""
    sizes: tuple[Size, ...] = ()
    """The sizes that each call may choose, up to their bounds, which memory is planned for."""

    @property
    def packings(self) -> dict[str, int]:
        """The bytes of each packing by its key."""
        return {slot.label: slot.shape[0] for slot in self.slots if slot.space == "packing"}

    def named(self, space: str) -> dict[str, int]:
        """The slots of all inputs, outputs or variables by name."""
        return {slot.label: i for i, slot in enumerate(self.slots) if slot.space == space}
