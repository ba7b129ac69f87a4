"""What does a micro-kernel compute at once, and where are its rows and lanes?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue

from popgraph.passes.tile_loops.access import Access, Place
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.panels import Column
from popgraph.passes.tile_loops.writer import Writer


@dataclass(frozen=True)
class Tile:
    """What one micro-kernel computes: a number of rows of some vectors."""

    rows: int
    columns: tuple[Column, ...]

    def __iter__(self) -> Iterator[tuple[int, Column]]:
        """All (row, column), row by row."""
        return ((row, column) for row in range(self.rows) for column in self.columns)

    @property
    def lanes(self) -> tuple[int, int]:
        """The first lane and the end of those that are results."""
        return self.columns[0].offset, self.columns[-1].offset + self.columns[-1].valid


def lanes_in(column: Column) -> int:
    """How many lanes a column's vector has; 0 when it is a scalar."""
    return column.lanes if column.lanes > 1 else 0


@dataclass(frozen=True)
class Grid:
    """
    Where the rows and lanes of tiles are: in the loops, and in local memory.

    `row` is the dimension of the domain that rows run along, if there is one, `lane` that of the
    lanes; in local memory a row has `lanes` elements. Sums are of type `kind`. After `across` rows
    the next ones are one further along dimension `line`, if there is one.
    """

    place: Place
    row: int | None
    lane: int
    lanes: int
    kind: Attribute
    line: int | None = None
    across: int = 1

    @property
    def writer(self) -> Writer:
        return self.place.writer

    @contextmanager
    def at(self, row: int | Index, lane: int | Index) -> Iterator[None]:
        """One row and lane of the current tile."""
        before = dict(self.place.where)
        if self.line is not None:
            assert isinstance(row, int), "rows of several lines are counted when they are written"
            self.place.where[self.line] += row // self.across
            row %= self.across
        if self.row is not None:
            self.place.where[self.row] += row
        self.place.where[self.lane] = Index() + lane
        yield
        self.place.where = before

    def contiguous(self, access: Access) -> bool:
        """Whether lanes stand side by side."""
        return access.form.stride(self.lane) == 1

    @contextmanager
    def each_lane(self, lanes: tuple[int, int]) -> Iterator[Index]:
        """A loop over lanes."""
        with self.writer.loop(*lanes) as loop:
            yield Index.of(loop.counter)

    # Local memory: a row of lanes for every row of a tile

    def local(self, tile: Tile, kind: Attribute) -> SSAValue:
        return self.writer.alloca(kind, tile.rows * self.lanes)

    def local_for(self, tile: Tile, access: Access) -> SSAValue:
        """Local memory for what is elsewhere."""
        assert isinstance(access.memory.type, MemRefType)
        return self.local(tile, access.memory.type.element_type)

    def slot(self, row: int | Index, lane: int | Index) -> Index:
        return (Index() + row).scaled(self.lanes) + lane

    def save(
        self, tile: Tile, values: Sequence[SSAValue], memory: SSAValue, first: Index | None = None
    ) -> None:
        """Puts the values of a tile where its rows are, the first of them at row `first`."""
        first = first or Index()
        for (row, column), value in zip(tile, values, strict=True):
            self.writer.put(value, memory, self.slot(first + row, column.offset))

    def saved(self, tile: Tile, memory: SSAValue, first: Index | None = None) -> list[SSAValue]:
        first = first or Index()
        return [self.saved_at(memory, first + row, column) for row, column in tile]

    def saved_at(self, memory: SSAValue, row: int | Index, column: Column) -> SSAValue:
        return self.writer.get(memory, self.slot(row, column.offset), lanes_in(column))
