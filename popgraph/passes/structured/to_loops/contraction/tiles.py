"""Register tiles: loops over their rows and lanes, and local memory for their sums."""

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
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer

ROLLED: Recipes = {}
"""The recipes of a loop that stays."""


@dataclass(frozen=True)
class Tile:
    """
    The results of one micro-kernel: some rows of some vectors.

    In a loop over blocks, `rows` are those of the largest one. `count` is the extent of the current
    one: in lines if a block has several, else in rows.
    """

    rows: int
    columns: tuple[Column, ...]
    count: SSAValue | None = None

    @property
    def lanes(self) -> tuple[int, int]:
        """The range of the lanes that are results."""
        return self.columns[0].offset, self.columns[-1].offset + self.columns[-1].valid

    @property
    def results(self) -> Tile:
        """The tile without lanes that are not results; its last vectors are narrower."""
        parts = tuple(part for one in self.columns for part in narrowed(one))
        return Tile(self.rows, parts, self.count)


@dataclass(frozen=True)
class TileSums:
    """
    The sums of a tile in local memory, from row `first` on.

    Memory `in_registers` is accessed by unrolled loops only: `unroll-loops` promotes it to values.
    """

    memory: SSAValue
    first: Index = field(default_factory=Index)
    in_registers: bool = False

    @property
    def recipes(self) -> Recipes:
        """The recipes of loops over these sums."""
        return UNROLLED if self.in_registers else ROLLED


EmitSum = Callable[[Index, Index, SSAValue], None]
"""Writes the computation on one sum, inside the loops over tiles: (row, lane, sum)."""


@dataclass(frozen=True)
class TileGrid:
    """
    Maps rows and lanes of tiles to the domain and to local memory.

    `row` and `lane` are their dimensions in the domain; without `row`, a tile has one row. In local
    memory, a row has `lanes` elements of type `kind`. With a dimension `line`, rows continue on the
    next line after `across` rows.
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
    def at(self, lane: int | Index) -> Iterator[None]:
        """Moves the current index by a number of lanes inside the context."""
        before = dict(self.point.indices)
        self.point.indices[self.lane] = self.point.indices[self.lane] + lane
        yield
        self.point.indices = before

    def contiguous(self, access: Access) -> bool:
        """Whether the lanes of an access are contiguous."""
        return access.form.stride(self.lane) == 1

    @contextmanager
    def each_row(self, tile: Tile, recipes: Recipes = ROLLED) -> Iterator[Index]:
        """Opens a loop over the rows of a tile, or two with lines."""
        across = tile.rows if self.line is None else self.across
        before = dict(self.point.indices)
        lines: Bound = tile.rows // across
        rows: Bound = across
        if tile.count is not None and self.line is None:
            rows = tile.count
        elif tile.count is not None:
            lines = tile.count
        with ExitStack() as loops:
            line = self._loop(loops, lines, self.line, recipes)
            row = self._loop(loops, rows, self.row, recipes)
            yield line.scaled(across) + row
        self.point.indices = before

    def _loop(self, loops: ExitStack, extent: Bound, dim: int | None, recipes: Recipes) -> Index:
        """Opens a loop along a dimension, unless it has a single iteration."""
        if extent == 1:
            return Index()
        assert dim is not None, "a tile of several rows has a dimension for them"
        loop = loops.enter_context(self.writer.loop(0, extent, recipes=recipes))
        step = Index.of(loop.counter)
        self.point.indices[dim] = self.point.indices[dim] + step
        return step

    @contextmanager
    def each_element(self, tile: Tile, recipes: Recipes = ROLLED) -> Iterator[tuple[Index, Index]]:
        """Opens loops over the rows and the lanes of a tile."""
        # `vectorize-loops` replaces lanes by vectors in unrolled loops: lanes need no `unroll`.
        widths = [column.lanes for column in tile.columns]
        first = tile.columns[0].offset
        lanes = {name: recipe for name, recipe in recipes.items() if name != UNROLL}
        lanes |= vectorized(widths)
        with (
            self.each_row(tile, recipes) as row,
            self.writer.loop(first, first + sum(widths), recipes=lanes) as loop,
        ):
            lane = Index.of(loop.counter)
            with self.at(lane):
                yield row, lane

    @contextmanager
    def each_lane(self, lanes: tuple[int, int]) -> Iterator[Index]:
        """Opens a loop over lanes."""
        with self.writer.loop(*lanes) as loop:
            yield Index.of(loop.counter)

    # Local memory: `rows` x `lanes` elements, row by row

    def local(self, tile: Tile, kind: Attribute) -> SSAValue:
        size = tile.rows * self.lanes
        if tile.count is None:
            return self.writer.alloca(kind, size)
        # Inside the loop over blocks: `split-loops` gives each block what its rows need.
        return self.writer.alloca_here(kind, size)

    def local_for(self, tile: Tile, access: Access) -> SSAValue:
        """Local memory for a tile of another memory's elements."""
        assert isinstance(access.memory.type, MemRefType)
        return self.local(tile, access.memory.type.element_type)

    def slot(self, row: int | Index, lane: int | Index) -> Index:
        return (Index() + row).scaled(self.lanes) + lane

    def registers(self, tile: Tile) -> TileSums:
        """New sums that become registers, one for each vector of a tile."""
        return TileSums(self.local(tile, self.kind), in_registers=True)

    def saved(self, tile: Tile, sums: TileSums) -> TileSums:
        """The sums in memory that any loop may access; copied there from registers."""
        if not sums.in_registers:
            return sums
        saved = TileSums(self.local(tile, self.kind))
        self.each_sum(tile, sums, lambda row, lane, value: self.put(value, saved, row, lane))
        return saved

    def each_sum(
        self, tile: Tile, sums: TileSums, emit: EmitSum, recipes: Recipes = ROLLED
    ) -> None:
        """Writes `emit` for each sum, row by row."""
        with self.each_element(tile, recipes or sums.recipes) as (row, lane):
            emit(row, lane, self.read(sums, row, lane))

    def read(self, sums: TileSums, row: Index, lane: Index) -> SSAValue:
        return self.writer.load(sums.memory, self.slot(sums.first + row, lane))

    def put(self, value: SSAValue, sums: TileSums, row: Index, lane: Index) -> None:
        self.writer.store(value, sums.memory, self.slot(sums.first + row, lane))

    def clear(self, tile: Tile, total: TileSums) -> None:
        """Sets the sums to zero."""
        with self.each_element(tile, total.recipes) as (row, lane):
            self.clear_at(row, lane, total)

    def clear_at(self, row: Index, lane: Index, total: TileSums) -> None:
        self.put(self.writer.number(0, self.kind), total, row, lane)

    def add(self, tile: Tile, total: TileSums, sums: TileSums) -> None:
        """Adds sums to a total."""

        def add_one(row: Index, lane: Index, old: SSAValue) -> None:
            self.put(self.sum(old, self.read(sums, row, lane)), total, row, lane)

        self.each_sum(tile, total, add_one, sums.recipes)

    def sum(self, lhs: SSAValue, rhs: SSAValue) -> SSAValue:
        return self.writer.add(create_same_type(sum_of(self.kind), lhs, rhs))
