"""How do many rows read a long panel of weights once? They take it in chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from popgraph.passes.tile_loops.ahead import Ahead
from popgraph.passes.tile_loops.epilogue import Epilogue
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.microkernel import MicroKernel
from popgraph.passes.tile_loops.tiles import Saved, Tile
from popgraph.passes.tile_loops.vectors import Run
from popgraph.support.shapes import prod

SUMS = 64 * 1024
"""Bytes of sums that stay in the second cache beside a chunk of a panel and what it meets."""

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
        memory = grid.local(self.whole, grid.kind)

        def add(runs: Sequence[Run]) -> None:
            """Adds one chunk to the sums of all rows."""
            with self.ahead.chunk(runs, self._terms(runs)):
                each_tile(
                    lambda tile, first: grid.add(tile, Saved(memory, first), micro.part(tile, runs))
                )

        each_tile(lambda tile, first: grid.clear(tile, Saved(memory, first)))
        micro.each_chunk(add)
        each_tile(lambda tile, first: self.epilogue.finish(tile, Saved(memory, first)))

    def _terms(self, runs: Sequence[Run]) -> int:
        """How many terms one chunk has."""
        cut = self.micro.cut
        assert cut is not None
        return cut[1] * prod(run.group.extent for run in runs[1:])
