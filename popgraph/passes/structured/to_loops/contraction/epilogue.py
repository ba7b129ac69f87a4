"""The epilogue of a register tile: computes results from its sums and stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from xdsl.ir import Attribute, Block, SSAValue

from popgraph.dialects import tile as tiles
from popgraph.dialects.tile.scalars import is_costly
from popgraph.passes.structured.analysis.panels import Column, narrowed
from popgraph.passes.structured.to_loops.contraction.tiles import (
    EmitSum,
    Tile,
    TileGrid,
    TileSums,
)
from popgraph.passes.structured.to_loops.emit.access import Access
from popgraph.passes.structured.to_loops.emit.bodies import inline
from popgraph.passes.structured.to_loops.emit.create import sum_of
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes, lanes_of


@dataclass(frozen=True)
class Epilogue:
    """
    The epilogue of a contraction: `targets = body(sum, inputs...)`.

    `in_lanes` states whether the body has a vector form.
    """

    grid: TileGrid
    body: Block
    epilogue_inputs: Sequence[Access]
    targets: Sequence[Access]
    in_lanes: bool

    def apply(self, tile: Tile, sums: TileSums) -> None:
        # Loops over elements, or over rows, index the sums, which must be in memory.
        if not self.in_lanes or self._is_long(tile):
            sums = self.grid.saved(tile, sums)
        if self.in_lanes:
            self._by_vectors(tile, partial(self.grid.each_sum, tile.results, sums))
        else:
            self._by_elements(tile, sums)

    def apply_to_vector(self, column: Column, total: SSAValue) -> None:
        """Writes the epilogue of one vector of sums, given as a value."""
        tile, grid = Tile(1, (column,)), self.grid
        if not self.in_lanes:
            sums = TileSums(grid.local(tile, grid.kind))
            grid.writer.vector_store(total, sums.memory, grid.slot(0, column.offset))
            self._by_elements(tile, sums)
            return

        def each_piece(emit: EmitSum) -> None:
            for part in narrowed(column):
                with grid.at(part.offset):
                    emit(Index(), Index(part.offset), self._piece(column, part, total))

        self._by_vectors(tile, each_piece)

    def _piece(self, column: Column, part: Column, total: SSAValue) -> SSAValue:
        """The lanes `part` of a vector, which are results."""
        writer, ahead = self.grid.writer, part.offset - column.offset
        if part == column:
            return total
        if part.lanes == 1:
            return writer.extract(total, ahead)
        return writer.shuffle(total, total, range(ahead, ahead + part.lanes))

    def _is_long(self, tile: Tile) -> bool:
        """Whether the epilogue, unrolled for all sums, would not fit registers."""
        # GELU in a register tile, for example: it runs in a loop over rows instead (7b934000).
        return tile.rows > 1 and any(map(is_costly, self.body.ops))

    def _by_vectors(self, tile: Tile, each_sum: Callable[[EmitSum], None]) -> None:
        """Writes the epilogue on vectors; operands that are not contiguous use local memory."""
        grid = self.grid
        gathered = [self._gathered(tile, access) for access in self.epilogue_inputs]
        deferred = [self._deferred(tile, target) for target in self.targets]

        def finish(row: Index, lane: Index, total: SSAValue) -> None:
            lanes = lanes_of(total)
            read = [
                self._epilogue_input(access, memory, row, lane, lanes)
                for access, memory in zip(self.epilogue_inputs, gathered, strict=True)
            ]
            results = inline(grid.point, self.body, [total, *read])
            for result, target, local in zip(results, self.targets, deferred, strict=True):
                where = (local, grid.slot(row, lane)) if local else grid.point.of(target)
                grid.writer.put(in_lanes(grid.writer, result, lanes), *where)

        each_sum(finish)
        for target, local in zip(self.targets, deferred, strict=True):
            if local is not None:
                self._scatter(tile, target, local)

    def _deferred(self, tile: Tile, target: Access) -> SSAValue | None:
        """Local memory for a result that vectors cannot store; None for others."""
        if self.grid.contiguous(target):
            return None
        return self.grid.local_for(tile, target)

    def _epilogue_input(
        self, access: Access, gathered: SSAValue | None, row: Index, lane: Index, lanes: int
    ) -> SSAValue:
        """Loads an epilogue input for one vector of sums."""
        # Not `load_input`: hoisted biases would stay live through the reduction. GCC then spills
        # factors: 49 % of peak instead of 94 % for tiles of 13 rows (Zen 5).
        grid = self.grid
        if gathered is not None:
            return grid.writer.get(gathered, grid.slot(row, lane), lanes)
        memory, index = grid.point.of(access)
        return grid.writer.get(memory, index, lanes if grid.contiguous(access) else 0)

    def _gathered(self, tile: Tile, access: Access) -> SSAValue | None:
        """Local memory with an epilogue input that vectors cannot load; None for others."""
        grid = self.grid
        if access.form.stride(grid.lane) in (0, 1):
            return None
        local = grid.local_for(tile, access)
        with self._elements(tile) as (row, lane):
            value = grid.writer.load(*grid.point.of(access))
            grid.writer.store(value, local, grid.slot(row, lane))
        return local

    def _scatter(self, tile: Tile, target: Access, local: SSAValue) -> None:
        """Copies the lanes of a result from local memory to the result."""
        grid = self.grid
        with self._elements(tile) as (row, lane):
            value = grid.writer.load(local, grid.slot(row, lane))
            grid.writer.store(value, *grid.point.of(target))

    def _by_elements(self, tile: Tile, sums: TileSums) -> None:
        """Writes the epilogue for one element at a time."""
        grid = self.grid
        with self._elements(tile) as (row, lane):
            total = grid.writer.load(sums.memory, grid.slot(sums.first + row, lane))
            epilogue_inputs = [
                grid.writer.load(*grid.point.of(access)) for access in self.epilogue_inputs
            ]
            results = inline(grid.point, self.body, [total, *epilogue_inputs])
            for value, target in zip(results, self.targets, strict=True):
                grid.writer.store(value, *grid.point.of(target))

    @contextmanager
    def _elements(self, tile: Tile) -> Iterator[tuple[Index, Index]]:
        """Opens loops over all results of a tile, rows inside lanes."""
        # Elements are accessed one by one where lanes are not contiguous; rows often are.
        grid = self.grid
        with grid.each_lane(tile.lanes) as lane, grid.at(lane), grid.each_row(tile) as row:
            yield row, lane


def sum_of_two(kind: Attribute) -> Block:
    """The body of an epilogue that adds the sum to one input."""
    block = Block(arg_types=[kind, kind])
    total = sum_of(kind)(block.args[1], block.args[0])
    block.add_ops([total, tiles.YieldOp(total.result)])
    return block


def sum_of_read(kind: Attribute) -> Block:
    """The body of an epilogue that adds two inputs and ignores the sum."""
    block = Block(arg_types=[kind, kind, kind])
    total = sum_of(kind)(block.args[1], block.args[2])
    block.add_ops([total, tiles.YieldOp(total.result)])
    return block
