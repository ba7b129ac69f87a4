"""Register tiles: the rows and vectors of one micro-kernel, in loops and in local memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.tile.loops.recipes import UNROLL, UNROLLED, Recipes, vectorized
from popgraph.passes.structured.analysis.panels import Column, narrowed
from popgraph.passes.structured.to_loops.emit.access import Access, IterationPoint
from popgraph.passes.structured.to_loops.emit.create import create_same_type, sum_of
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Writer

ROLLED: Recipes = {}
"""The recipes of a loop that stays."""


@dataclass(frozen=True)
class Tile:
    """What one micro-kernel computes: a number of rows of some vectors."""

    rows: int
    columns: tuple[Column, ...]

    @property
    def lanes(self) -> tuple[int, int]:
        """The first lane and the end of those that are results."""
        return self.columns[0].offset, self.columns[-1].offset + self.columns[-1].valid

    @property
    def results(self) -> Tile:
        """The same results without other lanes: by narrower vectors at the end."""
        return Tile(self.rows, tuple(part for one in self.columns for part in narrowed(one)))


@dataclass(frozen=True)
class TileSums:
    """
    The sums of a tile in local memory, where its first row is row `first`.

    Memory `in_registers` is accessed by unrolled loops alone: `unroll-loops` makes values of it.
    """

    memory: SSAValue
    first: Index = field(default_factory=Index)
    in_registers: bool = False

    @property
    def recipes(self) -> Recipes:
        """The recipes of loops over these sums."""
        return UNROLLED if self.in_registers else ROLLED


EmitSum = Callable[[Index, Index, SSAValue], None]
"""Writes the work on a sum, given its row and its lane; the loops over them are open."""


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
    def each_row(self, tile: Tile, recipes: Recipes = ROLLED) -> Iterator[Index]:
        """A loop over the rows of a tile: what is done to each is written once."""
        across = tile.rows if self.line is None else self.across
        before = dict(self.point.indices)
        with ExitStack() as loops:
            line = self._loop(loops, tile.rows // across, self.line, recipes)
            row = self._loop(loops, across, self.row, recipes)
            yield line.scaled(across) + row
        self.point.indices = before

    def _loop(self, loops: ExitStack, extent: int, dim: int | None, recipes: Recipes) -> Index:
        """One more loop, if there is more than one step of it."""
        if extent == 1:
            return Index()
        assert dim is not None, "there are rows without a loop"
        loop = loops.enter_context(self.writer.loop(0, extent, recipes=recipes))
        step = Index.of(loop.counter)
        self.point.indices[dim] = self.point.indices[dim] + step
        return step

    @contextmanager
    def each_element(self, tile: Tile, recipes: Recipes = ROLLED) -> Iterator[tuple[Index, Index]]:
        """Loops over the rows and the lanes of a tile; `vectorize-loops` makes vectors of lanes."""
        widths = [column.lanes for column in tile.columns]
        first = tile.columns[0].offset
        lanes = {name: recipe for name, recipe in recipes.items() if name != UNROLL}
        lanes |= vectorized(widths)
        with (
            self.each_row(tile, recipes) as row,
            self.writer.loop(first, first + sum(widths), recipes=lanes) as loop,
        ):
            lane = Index.of(loop.counter)
            with self.at(0, lane):
                yield row, lane

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

    def registers(self, tile: Tile) -> TileSums:
        """Sums that become registers: one for each vector of a tile."""
        return TileSums(self.local(tile, self.kind), in_registers=True)

    def saved(self, tile: Tile, sums: TileSums) -> TileSums:
        """The sums in memory that any loop may read."""
        if not sums.in_registers:
            return sums
        saved = TileSums(self.local(tile, self.kind))
        self.each_sum(tile, sums, lambda row, lane, value: self.put(value, saved, row, lane))
        return saved

    def each_sum(
        self, tile: Tile, sums: TileSums, emit: EmitSum, recipes: Recipes = ROLLED
    ) -> None:
        """One sum after the other, row by row."""
        with self.each_element(tile, recipes or sums.recipes) as (row, lane):
            emit(row, lane, self.read(sums, row, lane))

    def read(self, sums: TileSums, row: Index, lane: Index) -> SSAValue:
        return self.writer.load(sums.memory, self.slot(sums.first + row, lane))

    def put(self, value: SSAValue, sums: TileSums, row: Index, lane: Index) -> None:
        self.writer.store(value, sums.memory, self.slot(sums.first + row, lane))

    def clear(self, tile: Tile, total: TileSums) -> None:
        """Sums of nothing."""
        with self.each_element(tile, total.recipes) as (row, lane):
            self.clear_at(row, lane, total)

    def clear_at(self, row: Index, lane: Index, total: TileSums) -> None:
        self.put(self.writer.number(0, self.kind), total, row, lane)

    def add(self, tile: Tile, total: TileSums, sums: TileSums) -> None:
        """The total takes in more sums."""

        def add_one(row: Index, lane: Index, old: SSAValue) -> None:
            self.put(self.sum(old, self.read(sums, row, lane)), total, row, lane)

        self.each_sum(tile, total, add_one, sums.recipes)

    def sum(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        return self.writer.add(create_same_type(sum_of(self.kind), lhs, rhs))
