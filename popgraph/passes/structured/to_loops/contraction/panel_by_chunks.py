"""Loop interchange inside a panel: all rows add one K chunk before the next one is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from popgraph.passes.structured.to_loops.contraction.epilogue import Epilogue
from popgraph.passes.structured.to_loops.contraction.microkernel import MicroKernel
from popgraph.passes.structured.to_loops.contraction.tiles import Tile, TileGrid, TileSums
from popgraph.passes.structured.to_loops.emit.chunks import blocked_sum
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop

EachTile = Callable[[Callable[[Tile, Index], None]], None]
"""Writes the loops over tiles around the computation of one: (tile, number of its first row)."""


@dataclass(frozen=True)
class PanelByChunks:
    """Keeps the sums of all rows in local memory, as one tile `whole`, until the epilogue."""

    micro: MicroKernel
    epilogue: Epilogue
    whole: Tile

    def write(self, each_tile: EachTile) -> None:
        micro = self.micro
        levels = micro.levels()
        grid, count = micro.grid, len(levels) - 1
        memories = [grid.local(self.whole, grid.kind) for _ in range(count)]
        totals = PanelTotals(micro, each_tile, memories)
        blocked_sum(grid.point, levels, totals)
        total = memories[-1]
        each_tile(lambda tile, first: self.epilogue.apply(tile, TileSums(total, first)))


@dataclass(frozen=True)
class PanelTotals:
    """The sums of all rows of a panel, by levels of chunks."""

    micro: MicroKernel
    each_tile: EachTile
    memories: Sequence[SSAValue]

    @property
    def grid(self) -> TileGrid:
        return self.micro.grid

    def clear(self, level: int) -> None:
        memory = self.memories[level]
        self.each_tile(lambda tile, first: self.grid.clear(tile, TileSums(memory, first)))

    def add(self, nest: Sequence[NestLoop]) -> None:
        self.each_tile(lambda tile, first: self._add(tile, first, nest))

    def _add(self, tile: Tile, first: Index, nest: Sequence[NestLoop]) -> None:
        self.grid.add(tile, TileSums(self.memories[0], first), self.micro.sums_over(tile, nest))

    def carry(self, level: int) -> None:
        part, total = self.memories[level - 1], self.memories[level]
        self.each_tile(
            lambda tile, first: self.grid.add(tile, TileSums(total, first), TileSums(part, first))
        )
