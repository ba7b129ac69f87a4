"""K-outermost contractions: all results add one K chunk before the next, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Attribute, Block

from popgraph.dialects.element_types import element_bytes
from popgraph.passes.structured.to_loops.contraction.epilogue import (
    Epilogue,
    sum_of_read,
    sum_of_two,
)
from popgraph.passes.structured.to_loops.contraction.microkernel import MicroKernel
from popgraph.passes.structured.to_loops.contraction.tiles import Tile, TileSums
from popgraph.passes.structured.to_loops.emit.access import Access
from popgraph.passes.structured.to_loops.emit.chunks import LevelLoops, blocked_sum
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop

EachTile = Callable[[Callable[[Tile], None]], None]
"""Writes the loops over all tiles, around the computation of one."""


@dataclass(frozen=True)
class KOuterLoops:
    """
    Writes the loops of a contraction that accumulates its results in memory.

    `elements` is the size of the results' memory.
    """

    micro: MicroKernel
    epilogue: Epilogue
    each_tile: EachTile
    elements: int

    def write(self) -> None:
        """Writes the loops; results are the last level of totals, others are in local memory."""
        inside: list[LevelLoops] = []
        levels = self.micro.levels()
        if len(levels) == 1:
            levels.append(list)  # No loop around the only chunk.
        target = self.micro.grid.writer.target
        # Each level between has a copy of all results. If they do not fit in a share of L2, tiles
        # add these levels themselves.
        if self._bytes * (len(levels) - 2) > target.l2(target.tuning.k_outer_totals_l2):
            inside, levels = self._two_levels()
        (result,) = self.epilogue.targets
        totals = [self._local(result) for _ in levels[2:]]
        blocked_sum(self.micro.grid.point, levels, KOuterTotals(self, [*totals, result], inside))

    def _two_levels(self) -> tuple[list[LevelLoops], list[LevelLoops]]:
        """The levels of chunks inside a tile, and the two levels of the results."""
        count = self.micro.steps // self.micro.shortest
        few = self.micro.grid.writer.target.tuning.partial_sums
        *inside, last = self.micro.levels(longer=max(few, 2 * count // few))
        return inside[:-1], [inside[-1], last]

    def _local(self, target: Access) -> Access:
        """Local totals in the layout of the results."""
        memory = self.micro.grid.writer.alloca(self.micro.grid.kind, self.elements)
        return Access(memory, target.form)

    @property
    def _bytes(self) -> int:
        return self.elements * element_bytes(self.micro.grid.kind)


@dataclass(frozen=True)
class KOuterTotals:
    """Totals of all tiles, by levels of chunks; each tile adds the levels `inside` by itself."""

    loops: KOuterLoops
    targets: Sequence[Access]
    inside: Sequence[LevelLoops]

    def clear(self, level: int) -> None:
        clearing = replace(self.loops.epilogue, targets=[self.targets[level]])
        self._apply(clearing, self.loops.micro.zeros)

    def add(self, nest: Sequence[NestLoop]) -> None:
        adding = self._into(self.targets[0], sum_of_two(self._kind))
        levels: list[LevelLoops] = [*self.inside, lambda: list(nest)]
        self._apply(adding, lambda tile: self.loops.micro.sums(tile, levels))

    def carry(self, level: int) -> None:
        part, total = self.targets[level - 1 : level + 1]
        adding = self._into(total, sum_of_read(self._kind), part)
        self._apply(adding, self.loops.micro.zeros)

    def _into(self, target: Access, body: Block, *others: Access) -> Epilogue:
        """An epilogue that reads and updates its target."""
        return replace(
            self.loops.epilogue, body=body, epilogue_inputs=[target, *others], targets=[target]
        )

    def _apply(self, epilogue: Epilogue, sums: Callable[[Tile], TileSums]) -> None:
        self.loops.each_tile(lambda tile: epilogue.apply(tile, sums(tile)))

    @property
    def _kind(self) -> Attribute:
        return self.loops.micro.grid.kind
