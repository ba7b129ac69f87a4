"""Software prefetching of packed weights, some steps before they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from xdsl.dialects.builtin import MemRefType

from popgraph.dialects.element_types import element_bytes
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.contraction.tiles import TileGrid
from popgraph.passes.structured.to_loops.emit.access import Access, IterationPoint
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import Run
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target, Tuning


@dataclass(frozen=True)
class Section:
    """What all blocks of rows read before anybody reads on: a panel, or one chunk of its terms."""

    start: Index
    end: Index
    elements: int


@dataclass
class PanelPrefetch:
    """
    Asks for panels of a factor, a little in every step of the reduction.

    `inner` are the dimensions of the reduction, `users` the loops that read a panel again and
    again, `blocks` is how often they do. The first so many rows of a tile have panels of their own,
    which are read side by side as `streams`; with one, all share a panel. Where chunks are
    `alternating`, nobody knows what follows.
    """

    grid: TileGrid
    panel: Access
    lanes: int
    inner: Sequence[int]
    users: Sequence[Group]
    blocks: int
    streams: int
    alternating: bool
    _section: Section | None = field(default=None, init=False)

    @property
    def point(self) -> IterationPoint:
        return self.grid.point

    @property
    def target(self) -> Target:
        return self.point.writer.target

    def prefetch_step(self) -> None:
        """What one step of the reduction asks for."""
        tuning = self.target.tuning
        if self.blocks == 1 and not self.alternating:
            self._for_what_follows()
        elif self._is_long(tuning):
            self._for_next_section()

    def _is_long(self, tuning: Tuning) -> bool:
        """Whether few blocks read a panel of many elements."""
        few = self.blocks <= tuning.prefetched_blocks
        return few and self._steps * self.lanes >= tuning.prefetched_elements

    def _for_what_follows(self) -> None:
        """All that is read a few steps later; the next panel follows this one."""
        kind = self.panel.memory.type
        assert isinstance(kind, MemRefType)
        size = element_bytes(kind)
        machine, streamed = self.target.machine, self.target.l2(self.target.tuning.streamed_l2)
        if prod(kind.get_shape()) * size < streamed:
            return
        for stream in range(self.streams):
            with self.grid.at(stream, 0):
                memory, index = self.point.of(self.panel)
            for line in range(0, self.lanes * size, machine.line_bytes):
                ahead = machine.prefetch_bytes // self.streams + line
                self.point.writer.prefetch(memory, index + ahead // size)

    def _for_next_section(self) -> None:
        """A line of the next section; each block of rows asks for its share."""
        section = self._section or self._whole_panel()
        share = -(-self.lanes // self.blocks)
        index = section.end
        done = self.point.index(self.panel.form) + section.start.scaled(-1)
        index += done.divided(self.lanes).scaled(share)
        extents = [group.extent for group in self.users]
        weight = section.elements // prod(extents)
        for group, count in zip(reversed(self.users), reversed(extents), strict=True):
            index += self.point.indices[group.last].scaled(weight)
            weight *= count
        self.point.writer.prefetch(self.panel.memory, self.panel.start + index)

    @property
    def _steps(self) -> int:
        return prod(self.point.sizes[dim] for dim in self.inner)

    def _whole_panel(self) -> Section:
        elements = self._steps * self.lanes
        with self._at_first_term(self.inner):
            start = self.point.index(self.panel.form)
        return Section(start, start + elements, elements)

    @contextmanager
    def chunk(self, runs: Sequence[Run], terms: int) -> Iterator[None]:
        """While all blocks of rows go through these terms, the next ones are asked for."""
        part, dim = runs[0].part, runs[0].group.last
        with self._at_first_term([dim for one in runs for dim in one.group.dims]):
            self.point.indices[dim] = part.first
            start = self.point.index(self.panel.form)
            self.point.indices[dim] = part.end
            end = self.point.index(self.panel.form)
        self._section = Section(start, end, terms * self.lanes)
        yield
        self._section = None

    @contextmanager
    def _at_first_term(self, dims: Sequence[int]) -> Iterator[None]:
        before = dict(self.point.indices)
        self.point.indices |= dict.fromkeys(dims, Index())
        yield
        self.point.indices = before
