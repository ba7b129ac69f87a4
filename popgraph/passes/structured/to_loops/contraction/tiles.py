"""Register tiles: the rows and vectors of one micro-kernel, in loops and in local memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue

from popgraph.passes.structured.analysis.panels import Column
from popgraph.passes.structured.to_loops.emit.access import Access, IterationPoint
from popgraph.passes.structured.to_loops.emit.create import create_same_type, sum_of
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes
from popgraph.passes.structured.to_loops.emit.writer import Writer


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
class StoredSums:
    """The sums of a tile in local memory, where its first row is row `first`."""

    memory: SSAValue
    first: Index = field(default_factory=Index)


TileSums = Sequence[SSAValue] | StoredSums
"""The sums of a tile: as values, row by row, or in local memory."""

EmitRow = Callable[[Index, Sequence[SSAValue]], None]
"""Writes what is done to the sums of a row, given its number; loops are there already."""


@dataclass(frozen=True)
class TileGrid:
    """
    Where the rows and lanes of tiles are: in the loops, and in local memory.

    `row` is the dimension of the domain that rows run along, if there is one, `lane` that of the
    lanes; in local memory a row has `lanes` elements. Sums are of type `kind`. After `across` rows
    the next ones are one further along dimension `line`, if there is one.
    """

    point: IterationPoint
    row: int | None
    lane: int
    lanes: int
    kind: Attribute
    line: int | None = None
    across: int = 1

    @property
    def writer(self) -> Writer:
        return self.point.writer

    @contextmanager
    def at(self, row: int | Index, lane: int | Index) -> Iterator[None]:
        """One row and lane of the current tile."""
        before = dict(self.point.indices)
        if self.line is not None:
            assert isinstance(row, int), "rows of several lines are counted when they are written"
            self.point.indices[self.line] += row // self.across
            row %= self.across
        if self.row is not None:
            self.point.indices[self.row] += row
        self.point.indices[self.lane] = self.point.indices[self.lane] + lane
        yield
        self.point.indices = before

    def contiguous(self, access: Access) -> bool:
        """Whether lanes stand side by side."""
        return access.form.stride(self.lane) == 1

    @contextmanager
    def each_row(self, tile: Tile) -> Iterator[Index]:
        """A loop over the rows of a tile: what is done to each is written once."""
        across = tile.rows if self.line is None else self.across
        before = dict(self.point.indices)
        with ExitStack() as loops:
            line = self._loop(loops, tile.rows // across, self.line)
            row = self._loop(loops, across, self.row)
            yield line.scaled(across) + row
        self.point.indices = before

    def _loop(self, loops: ExitStack, extent: int, dim: int | None) -> Index:
        """One more loop, if there is more than one step of it."""
        if extent == 1:
            return Index()
        assert dim is not None, "there are rows without a loop"
        step = Index.of(loops.enter_context(self.writer.loop(0, extent)).counter)
        self.point.indices[dim] = self.point.indices[dim] + step
        return step

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

    def saved(self, tile: Tile, sums: TileSums) -> StoredSums:
        """The sums in local memory: put there, if they are values."""
        if isinstance(sums, StoredSums):
            return sums
        saved = StoredSums(self.local(tile, self.kind))
        for (row, column), value in zip(tile, sums, strict=True):
            self.writer.put(value, saved.memory, self.slot(row, column.offset))
        return saved

    def by_rows(self, tile: Tile, sums: TileSums, emit: EmitRow) -> None:
        """One row after the other: written out where sums are values, else in a loop."""
        if isinstance(sums, StoredSums):
            with self.each_row(tile) as row:
                emit(row, [self.read(sums, row, column) for column in tile.columns])
            return
        across = len(tile.columns)
        for number in range(tile.rows):
            with self.at(number, 0):
                emit(Index(number), sums[number * across : (number + 1) * across])

    def read(self, saved: StoredSums, row: Index, column: Column) -> SSAValue:
        slot = self.slot(saved.first + row, column.offset)
        return self.writer.get(saved.memory, slot, lanes_in(column))

    def zero(self, column: Column) -> SSAValue:
        """What a sum of no terms is."""
        return in_lanes(self.writer, self.writer.number(0, self.kind), lanes_in(column))

    def clear(self, tile: Tile, total: StoredSums) -> None:
        """Sums of nothing."""
        with self.each_row(tile) as row:
            for column in tile.columns:
                slot = self.slot(total.first + row, column.offset)
                self.writer.put(self.zero(column), total.memory, slot)

    def add(self, tile: Tile, total: StoredSums, sums: Sequence[SSAValue]) -> None:
        """The total takes in more sums; written out, because these are in registers."""
        for (row, column), value in zip(tile, sums, strict=True):
            old = self.read(total, Index(row), column)
            slot = self.slot(total.first + row, column.offset)
            self.writer.put(self.sum(old, value), total.memory, slot)

    def carry(self, tile: Tile, part: StoredSums, total: StoredSums) -> None:
        """The total takes in another one."""
        with self.each_row(tile) as row:
            for column in tile.columns:
                old, value = (self.read(saved, row, column) for saved in (total, part))
                slot = self.slot(total.first + row, column.offset)
                self.writer.put(self.sum(old, value), total.memory, slot)

    def sum(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        return self.writer.add(create_same_type(sum_of(self.kind), lhs, rhs))
