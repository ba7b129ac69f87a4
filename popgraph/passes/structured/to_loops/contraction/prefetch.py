"""Prefetches of packed weights: recipes for `prefetch-panels` on the loops of a reduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.loops.recipes import (
    PrefetchAheadAttr,
    PrefetchAttr,
    PrefetchNextAttr,
)
from popgraph.dialects.tile.loops.soundness import constant_of
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, argument_number
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target

Prefetch = Callable[[int, int], PrefetchAttr | None]
"""
Returns the recipe for the innermost loop of a reduction; None for no prefetches.

Arguments: the number of reduction loops, open or not, and of the loops around them.
"""


def no_prefetch(_: int, __: int) -> PrefetchAttr | None:
    return None


@dataclass(frozen=True)
class NextSection:
    """
    The next section of a panel, of `elements`: each block of rows prefetches a share of it.

    `users` are the loops that read a section again, `blocks` times in total. A step requests
    `lines` cache lines.
    """

    point: IterationPoint
    memory: SSAValue
    lanes: int
    elements: int
    users: Sequence[Group]
    blocks: int
    lines: int = 1

    @property
    def share(self) -> int:
        """The elements that one step of a block prefetches."""
        # Rounded up: 32 lanes and 3 blocks are shares of 11, so that the section is covered.
        return -(-self.lanes // self.blocks)

    def recipe(self, loops: int, outside: int) -> PrefetchAttr | None:
        argument = argument_number(self.memory)
        if argument is None:
            return None
        rows = Index()
        for group in self.users:
            rows = rows.scaled(group.extent) + self.point.indices[group.last]
        skipped = rows.scaled(self.elements // prod(group.extent for group in self.users))
        levels = self.point.writer.levels[outside:0:-1]
        around = [level.block.args[0] if level.block.args else None for level in levels]
        again = [skipped.terms.get(counter, 0) if counter else 0 for counter in around]
        # Trailing zeros are loops that share nothing: the text of a recipe has none.
        while again and not again[-1]:
            again.pop()
        numbers = {"first": skipped.constant}
        for value, factor in skipped.terms.items():
            if value not in around:
                divisor, modulo = _digit(value)
                numbers |= {"chunk": factor, "divisor": divisor, "modulo": modulo}
        return PrefetchNextAttr.of(
            again,
            argument=argument,
            elements=self.elements,
            lanes=self.lanes,
            share=self.share,
            lines=self.lines,
            loops=loops,
            **numbers,
        )


def _digit(value: SSAValue) -> tuple[int, int]:
    """The divisor and the modulus (0: none) of a digit of the chunk's number."""
    op = value.owner
    if not isinstance(op, arith.DivSIOp | arith.RemSIOp):
        return 1, 0
    (divisor, _), by = _digit(op.lhs), constant_of(op.rhs)
    assert by is not None, "loops are cut into a fixed number of parts"
    return (divisor * by, 0) if isinstance(op, arith.DivSIOp) else (divisor, by)


@dataclass(frozen=True)
class PanelPrefetch:
    """
    Prefetches of the packed panels of a factor, if they pay.

    With several `streams`, each row of a tile has panels of its own, read concurrently; with one,
    all rows share a panel. `alternating` chunks read panels forwards or backwards.
    """

    # Zen 5, 32 x 4096 x 4096 in chunks of 256 terms: 4.1 ms with prefetches, 7.3 ms without. Each
    # chunk of a panel is a stream too short for hardware to follow.

    panel: NextSection
    streams: int
    alternating: bool
    target: Target

    @property
    def blocks(self) -> int:
        """The number of blocks of rows that read a panel."""
        return self.panel.blocks

    def recipe(self, loops: int, outside: int) -> PrefetchAttr | None:
        """The recipe for loops over a whole panel."""
        # A panel that is read once has no later blocks of rows: it prefetches its own elements.
        if self.blocks == 1 and not self.alternating:
            return self._ahead()
        return self.panel.recipe(loops, outside) if self._is_long else None

    def chunk_recipe(self, terms: int) -> Prefetch:
        """The recipe for loops over one chunk of a panel, which all blocks of rows read."""
        chunk = replace(self.panel, elements=terms * self.panel.lanes)
        return chunk.recipe if self._is_long else no_prefetch

    @property
    def _is_long(self) -> bool:
        """Whether a panel has many elements for few blocks of rows, so that prefetches pay."""
        # ResNet-50 with cold weights: 31.0 ms without, 30.2 ms with prefetches; layers of 7x7
        # pixels go from 74 % to 93 % of peak (Zen 5).
        tuning = self.target.tuning
        few = self.blocks <= tuning.prefetched_blocks
        return few and self.panel.elements >= tuning.prefetched_elements

    def _ahead(self) -> PrefetchAttr | None:
        """The recipe for a factor that no cache keeps, whose panels are read once, in order."""
        # All streams together stay `prefetch_bytes` ahead: what a core reads in a memory latency.
        kind, argument = self.panel.memory.type, argument_number(self.panel.memory)
        assert isinstance(kind, MemRefType)
        size = element_bytes(kind)
        machine, streamed = self.target.machine, self.target.l2(self.target.tuning.streamed_l2)
        if argument is None or prod(kind.get_shape()) * size < streamed:
            return None
        by = machine.prefetch_bytes // self.streams // size
        return PrefetchAheadAttr.of(argument=argument, by=by)
