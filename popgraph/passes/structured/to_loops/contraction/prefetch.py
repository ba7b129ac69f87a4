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
The recipe for the innermost loop of a reduction.

Given the number of its loops, some of which may still be closed, and that of those around them.
"""


def no_prefetch(_: int, __: int) -> PrefetchAttr | None:
    return None


@dataclass(frozen=True)
class NextSection:
    """
    The next section of a panel, which has `elements`: each block of rows prefetches its share.

    `users` are the loops that read a section again, `blocks` times together. A step requests
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
    """The divisor and the modulus by which a digit is made of the number of a chunk."""
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

    With several `streams`, each row of a tile has panels of its own, which are read side by side;
    with one, all rows share a panel. In `alternating` chunks, the order of panels is not known.
    """

    panel: NextSection
    streams: int
    alternating: bool
    target: Target

    @property
    def blocks(self) -> int:
        """The number of blocks of rows that read a panel."""
        return self.panel.blocks

    def recipe(self, loops: int, outside: int) -> PrefetchAttr | None:
        """For the loops through a whole panel."""
        if self.blocks == 1 and not self.alternating:
            return self._ahead()
        return self.panel.recipe(loops, outside) if self._is_long else None

    def of_chunk(self, terms: int) -> Prefetch:
        """For the loops of one chunk of a panel, which all blocks of rows read before the next."""
        chunk = replace(self.panel, elements=terms * self.panel.lanes)
        return chunk.recipe if self._is_long else no_prefetch

    @property
    def _is_long(self) -> bool:
        """Whether few blocks read a panel of many elements."""
        tuning = self.target.tuning
        few = self.blocks <= tuning.prefetched_blocks
        return few and self.panel.elements >= tuning.prefetched_elements

    def _ahead(self) -> PrefetchAttr | None:
        """For a factor that no cache keeps, whose panels are read once, in order."""
        kind, argument = self.panel.memory.type, argument_number(self.panel.memory)
        assert isinstance(kind, MemRefType)
        size = element_bytes(kind)
        machine, streamed = self.target.machine, self.target.l2(self.target.tuning.streamed_l2)
        if argument is None or prod(kind.get_shape()) * size < streamed:
            return None
        by = machine.prefetch_bytes // self.streams // size
        return PrefetchAheadAttr.of(argument=argument, by=by)
