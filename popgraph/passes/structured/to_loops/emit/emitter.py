"""The protocol of emitters, which write the loops of operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from popgraph.dialects.tile.affine import Linear
from popgraph.dialects.tile.cut import cut_of
from popgraph.dialects.tile.running import running_of
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.analysis.parallel_loops import Loop, MemoryAccess, touched
from popgraph.passes.structured.to_loops.emit.access import Access, Span
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class Body:
    """The body of a kernel while it is written, for one chunk."""

    writer: Writer
    inputs: Sequence[SSAValue]
    """The memory of each input of the emitter."""
    outputs: Sequence[SSAValue]
    """The memory of each result."""
    parts: Sequence[Span]
    """The range of each of the emitter's `groups` that the chunk runs."""

    def accesses(self, forms: Sequence[Linear]) -> list[Access]:
        """The accesses to inputs, then results, with these offsets of elements."""
        memories = [*self.inputs, *self.outputs]
        return [Access(memory, form) for memory, form in zip(memories, forms, strict=True)]


class Emitter(ABC):
    """
    Writes the loops of one operation.

    A subclass declares operands, results, loops and work, and writes the body. `emitters.kernel_of`
    adds the kernel around the body and the split over threads.
    """

    inputs: Sequence[SSAValue]
    """The tensors that the kernel reads, in the order of its arguments."""
    outputs: Sequence[SSAValue]
    """The tensors that the kernel writes."""
    groups: Sequence[Group] = ()
    """The parallel loops, outermost first; a cut refers to them by number."""
    inner: Sequence[Group] = ()
    """The reduction loops, which every chunk runs in full."""
    values: Sequence[SSAValue] = ()
    """The tensors whose traffic decides how threads share the loops; the results are last."""
    forms: Sequence[Linear] = ()
    """For each of the values, the offset of an element in its memory."""
    work: int = 0
    """Elements touched by the whole operation."""
    most_cut_loops = 1
    """The most loops that a cut may split."""
    covers_memory = False
    """Whether `write` fills halos and padding, too; otherwise they are zeroed before it."""

    def __init__(self, op: Operation, target: Target) -> None:
        self.target, self.cut, self.running = target, cut_of(op), running_of(op)

    @property
    @abstractmethod
    def loops(self) -> Sequence[Loop] | None:
        """The first `groups` that threads may share; None: one thread runs the kernel."""

    @abstractmethod
    def write(self, body: Body) -> None:
        """Writes the loops of one chunk."""

    @property
    def touched(self) -> Sequence[MemoryAccess]:
        """The tensors that chunks read and write, the results last."""
        return touched(self.values, self.forms, self.groups, len(self.outputs))

    @property
    def inplace(self) -> list[tuple[int, int]]:
        """Pairs of an input and a result, by number, that may share memory; see `tile.launch`."""
        return []

    @property
    def ends_at_sizes(self) -> bool:
        """Whether every loop that ends at a size of the call does so, none at its bound."""
        loops = [*self.groups, *self.inner]
        found = [group.running for group in loops if group.running is not None]
        return len(found) == len(self.running)

    @property
    def writes_short_pieces(self) -> bool:
        """Whether the chunks of a cut write many short runs of a result's memory."""
        return (
            self.cut is not None
            and len(self.touched) > 0
            and self.cut.parts[0].loop in self.touched[-1].short(self.target)
        )
