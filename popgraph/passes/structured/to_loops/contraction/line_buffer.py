"""The line buffer of a fused kernel: produces rows as the consumer slides over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.tile.affine import row_major
from popgraph.dialects.tile.attributes import physical_shape
from popgraph.dialects.tile.structured.fused import LineBuffer
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer
from popgraph.passes.structured.to_loops.emit.zero_padding import clear_box
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class Rows:
    """`size` iterations of a loop over rows, from `first` on; in local memory, at `local`."""

    loop: int
    size: int
    first: Index = field(default_factory=Index)
    local: int = 0


Emit = Callable[[Rows], None]
"""Writes the computation of a contraction for some rows."""


@dataclass(frozen=True)
class LineBufferLoops:
    """The steps of one panel of channels: produce rows, read the buffer, shift the overlap."""

    writer: Writer
    geometry: LineBuffer
    splits: int
    memory: SSAValue
    """The buffer: the rows that one step reads."""
    type_: TensorType[Attribute]
    """The type of the buffer."""
    lanes: int
    """The elements of a vector; a row is a multiple of them."""
    make: Emit
    read: Emit

    def write(self, part: Index) -> None:
        """Writes the steps of one split of the image."""
        geometry = self.geometry
        steps = geometry.steps // self.splits
        first = part.scaled(steps)
        # Only the first split begins above the image. Each other one computes the overlap with its
        # predecessor again: splits run on different threads (EfficientNet-Lite0 takes 0.90 of the
        # time on two, 3726deca).
        with self._only_split(part, "eq", 0):
            self._begin()
        if self.splits > 1:
            with self._only_split(part, "ne", 0):
                self._refill(first)
        lower, upper = self._bounds(first, steps)
        with self.writer.loop(lower, upper) as loop:
            self._step(Index.of(loop.counter), geometry.produced)
            self._shift_overlap()
        if geometry.tail:
            with self._only_split(part, "eq", self.splits - 1):
                self._step(Index(geometry.steps - 1), geometry.produced - geometry.tail)

    @contextmanager
    def _only_split(self, part: Index, relation: str, number: int) -> Iterator[None]:
        """Opens a branch for the splits with this relation to a number; none if there is one."""
        inside = nullcontext()
        if self.splits > 1:
            value, other = self.writer.value(part), self.writer.constant(number)
            condition = self.writer.once(arith.CmpiOp(value, other, relation))
            inside = self.writer.when(condition)  # type: ignore[assignment]
        with inside:
            self.writer.written_here(self.memory)
            yield
        self.writer.written_here(self.memory)

    def _bounds(self, first: Index, steps: int) -> tuple[Bound, Bound]:
        """The bounds of the steps that produce all their rows; the last one may not."""
        tail = 1 if self.geometry.tail else 0
        if self.splits == 1:
            return 0, steps - tail
        upper = self.writer.value(first + steps)
        if tail:
            last = self.writer.constant(self.geometry.steps - 1)
            upper = self.writer.once(arith.MinSIOp(upper, last))
        return self.writer.value(first), upper

    def _begin(self) -> None:
        """Zeroes the padding above the image, then produces the rows before the first step."""
        geometry = self.geometry
        self._clear(0, -geometry.low)
        if geometry.prologue:
            self._produce(geometry.prologue, Index(), -geometry.low)

    def _refill(self, first: Index) -> None:
        """Produces the overlap that the previous split would have left in the buffer."""
        geometry = self.geometry
        self._produce(geometry.overlap, first.scaled(geometry.produced) + geometry.low, 0)

    def _step(self, number: Index, produced: int) -> None:
        """Produces rows, zeroes the rest below the image, and reads the buffer."""
        geometry = self.geometry
        # The buffer changes in each step: no load of it may be hoisted out of the loop.
        self.writer.written_here(self.memory)
        self._produce(
            produced, number.scaled(geometry.produced) + geometry.prologue, geometry.overlap
        )
        self._clear(geometry.overlap + produced, geometry.produced - produced)
        first = number.scaled(geometry.rows)
        self.read(Rows(geometry.loops[1], geometry.rows, first, -geometry.low * self._row))

    def _produce(self, count: int, first: Index, at: int) -> None:
        """Produces rows of the image from `first` on, into the buffer from row `at` on."""
        if count:
            self.make(Rows(self.geometry.loops[0], count, first, at * self._row))

    def _shift_overlap(self) -> None:
        """Moves the rows that the next step reads again to the start of the buffer."""
        # The window then has linear indices; a ring buffer would divide by its size in each.
        ahead, count = self.geometry.produced * self._row, self.geometry.overlap * self._row
        if not count:
            return
        writer = self.writer
        with writer.loop(0, count, self.lanes) as loop:
            index = Index.of(loop.counter)
            writer.vector_store(
                writer.vector_load(self.memory, index + ahead, self.lanes), self.memory, index
            )

    def _clear(self, at: int, count: int) -> None:
        """Zeroes rows of the buffer."""
        if count:
            start, size = at * self._row, count * self._row
            clear_box(self.writer, self.type_, self.memory, (start,), (size,))

    @property
    def _row(self) -> int:
        """The elements of one row of the buffer."""
        shape = physical_shape(self.type_)
        axis = self.geometry.loops[0]
        assert prod(shape[:axis]) == 1, "rows of one image"
        return row_major(shape)[axis]
