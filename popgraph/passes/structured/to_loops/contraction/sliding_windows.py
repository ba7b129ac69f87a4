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
from popgraph.dialects.tile.structured.chain import Sliding
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer
from popgraph.passes.structured.to_loops.emit.zero_padding import clear_box
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class Rows:
    """So many steps of a loop, from `first` on; those of a local image stand at `local` in it."""

    loop: int
    size: int
    first: Index = field(default_factory=Index)
    local: int = 0


Emit = Callable[[Rows], None]
"""Writes the work of a contraction on some rows."""


@dataclass(frozen=True)
class Turns:
    """The turns of one panel of channels: make the next rows, read them, keep those at the end."""

    writer: Writer
    sliding: Sliding
    parts: int
    memory: SSAValue
    """The rows that one turn reads."""
    type_: TensorType[Attribute]
    """Of these."""
    lanes: int
    """The elements of one vector, whole numbers of which are a row."""
    make: Emit
    read: Emit

    def write(self, part: Index) -> None:
        """Writes the turns of one part of the image."""
        sliding = self.sliding
        turns = sliding.turns // self.parts
        first = part.scaled(turns)
        with self._at(part, "eq", 0):
            self._begin()
        if self.parts > 1:
            with self._at(part, "ne", 0):
                self._catch_up(first)
        lower, upper = self._bounds(first, turns)
        with self.writer.loop(lower, upper) as loop:
            self._turn(Index.of(loop.counter), sliding.made)
            self._keep()
        if sliding.beyond:
            with self._at(part, "eq", self.parts - 1):
                self._turn(Index(sliding.turns - 1), sliding.made - sliding.beyond)

    @contextmanager
    def _at(self, part: Index, relation: str, number: int) -> Iterator[None]:
        """Inside is what happens for some of the parts only."""
        inside = nullcontext()
        if self.parts > 1:
            value, other = self.writer.value(part), self.writer.constant(number)
            condition = self.writer.once(arith.CmpiOp(value, other, relation))
            inside = self.writer.when(condition)  # type: ignore[assignment]
        with inside:
            self.writer.written_here(self.memory)
            yield
        self.writer.written_here(self.memory)

    def _bounds(self, first: Index, turns: int) -> tuple[Bound, Bound]:
        """From which turn to which all are alike."""
        beyond = 1 if self.sliding.beyond else 0
        if self.parts == 1:
            return 0, turns - beyond
        upper = self.writer.value(first + turns)
        if beyond:
            last = self.writer.constant(self.sliding.turns - 1)
            upper = self.writer.once(arith.MinSIOp(upper, last))
        return self.writer.value(first), upper

    def _begin(self) -> None:
        """Above the image is nothing; then come the rows that have to be there first."""
        sliding = self.sliding
        self._clear(0, -sliding.low)
        if sliding.lead:
            self._made(sliding.lead, Index(), -sliding.low)

    def _catch_up(self, first: Index) -> None:
        """What the part before would have left for the first turn of this one."""
        sliding = self.sliding
        self._made(sliding.kept, first.scaled(sliding.made) + sliding.low, 0)

    def _turn(self, number: Index, made: int) -> None:
        """Makes so many rows, behind which is nothing, and reads what is there."""
        sliding = self.sliding
        self.writer.written_here(self.memory)
        self._made(made, number.scaled(sliding.made) + sliding.lead, sliding.kept)
        self._clear(sliding.kept + made, sliding.made - made)
        first = number.scaled(sliding.rows)
        self.read(Rows(sliding.loops[1], sliding.rows, first, -sliding.low * self._row))

    def _made(self, count: int, first: Index, at: int) -> None:
        """Rows of the image from `first` on, which stand in memory from row `at` on."""
        if count:
            self.make(Rows(self.sliding.loops[0], count, first, at * self._row))

    def _keep(self) -> None:
        """What the next turn reads once more moves to the start."""
        ahead, count = self.sliding.made * self._row, self.sliding.kept * self._row
        if not count:
            return
        writer = self.writer
        with writer.loop(0, count, self.lanes) as loop:
            index = Index.of(loop.counter)
            writer.vector_store(
                writer.vector_load(self.memory, index + ahead, self.lanes), self.memory, index
            )

    def _clear(self, at: int, count: int) -> None:
        """Zeroes rows in memory."""
        if count:
            start, size = at * self._row, count * self._row
            clear_box(self.writer, self.type_, self.memory, (start,), (size,))

    @property
    def _row(self) -> int:
        """The elements of one row in memory."""
        shape = physical_shape(self.type_)
        axis = self.sliding.loops[0]
        assert prod(shape[:axis]) == 1, "rows of one image"
        return row_major(shape)[axis]
