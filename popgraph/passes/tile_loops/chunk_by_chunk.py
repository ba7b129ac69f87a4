"""How do many rows read a long panel of weights once? They take it in chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from popgraph.passes.tile_loops.ahead import Ahead
from popgraph.passes.tile_loops.epilogue import Epilogue
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.making import alike
from popgraph.passes.tile_loops.microkernel import MicroKernel
from popgraph.passes.tile_loops.tiles import Tile
from popgraph.passes.tile_loops.vectors import Run
from popgraph.support.shapes import prod

SUMS = 16 * 1024
"""Bytes of sums that stay in the first cache beside a chunk of a panel."""

EachTile = Callable[[Callable[[Tile, Index], None]], None]
"""Writes the loops over tiles, around work on one tile that begins at some row."""


@dataclass(frozen=True)
class ChunkByChunk:
    """The sums of all rows stand in local memory, as a tile `whole`, until they are finished."""

    micro: MicroKernel
    epilogue: Epilogue
    ahead: Ahead
    whole: Tile

    def write(self, each_tile: EachTile) -> None:
        grid, micro = self.micro.grid, self.micro
        total = grid.local(self.whole, grid.kind)
        each_tile(lambda tile, first: grid.save(tile, micro.zeros(tile), total, first))
        micro.each_chunk(lambda runs: self._add(runs, total, each_tile))
        each_tile(lambda tile, first: self.epilogue.finish(tile, grid.saved(tile, total, first)))

    def _add(self, runs: Sequence[Run], total: SSAValue, each_tile: EachTile) -> None:
        """Adds one chunk to the sums of all rows."""
        grid, cut = self.micro.grid, self.micro.cut
        assert cut is not None

        def to_total(tile: Tile, first: Index) -> None:
            sums, old = self.micro.part(tile, runs), grid.saved(tile, total, first)
            pairs = zip(old, sums, strict=True)
            added = [grid.writer.add(alike(arith.AddfOp, *pair)) for pair in pairs]
            grid.save(tile, added, total, first)

        terms = cut[1] * prod(run.group.extent for run in runs[1:])
        with self.ahead.chunk(runs, terms):
            each_tile(to_total)
