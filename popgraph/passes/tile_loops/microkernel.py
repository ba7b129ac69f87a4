"""How are the sums of a tile kept in registers while the reduction loops run?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith, vector
from xdsl.ir import SSAValue

from popgraph.passes.tile_loops.access import Access, Group, Span
from popgraph.passes.tile_loops.making import alike
from popgraph.passes.tile_loops.panels import Column
from popgraph.passes.tile_loops.sums import chunk_of_terms, chunk_span
from popgraph.passes.tile_loops.tiles import Grid, Saved, Sums, Tile, lanes_in
from popgraph.passes.tile_loops.vectors import Run, in_lanes, run


@dataclass(frozen=True)
class MicroKernel:
    """
    Sums of products for all rows and vectors of a tile, one accumulator each.

    `inner` are the reduction loops, `terms` how many terms are summed before the sum joins the
    total (0: all of them); `each_step` writes what else every step of the reduction does. With
    `window`, the innermost reduction is written out: what its steps read in common is read once.
    """

    grid: Grid
    factors: Sequence[Access]
    inner: Sequence[Group]
    terms: int
    each_step: Callable[[], None] = lambda: None
    window: bool = False

    def zeros(self, tile: Tile) -> list[SSAValue]:
        return [self.grid.zero(column) for _, column in tile]

    def sums(self, tile: Tile) -> Sums:
        """The accumulators after the reduction; short sums are added into local memory."""
        if self.cut is None:
            return self.part(tile, self._runs)
        grid = self.grid
        total = Saved(grid.local(tile, grid.kind))
        grid.clear(tile, total)
        self.each_chunk(lambda runs: grid.add(tile, total, self.part(tile, runs)))
        return total

    def part(self, tile: Tile, runs: Sequence[Run]) -> list[SSAValue]:
        """The sums that these loops make."""

        def step(_: int, sums: list[SSAValue]) -> list[SSAValue]:
            self.each_step()
            loaded = Loaded(self)
            return [
                self._added(loaded.factors(row, column), lanes_in(column), old)
                for (row, column), old in zip(tile, sums, strict=True)
            ]

        zeros = self.zeros(tile)
        if any(one.group.extent == 0 for one in runs):
            return zeros
        if not self.window or not runs:
            return run(self.grid.place, runs, step, zeros)
        last = runs[-1]
        steps = last.part.fixed
        if steps is None:
            return run(self.grid.place, runs, step, zeros)

        def window(_: int, sums: list[SSAValue]) -> list[SSAValue]:
            for at in range(steps):
                self.grid.place.bind(last.group, last.part.base + at)
                sums = step(1, sums)
            return sums

        return run(self.grid.place, runs[:-1], window, zeros)

    def each_chunk(self, emit: Callable[[Sequence[Run]], None]) -> None:
        """Loops over the chunks of the reduction; `emit` gets the loops of one chunk."""
        runs, cut = self._runs, self.cut
        if cut is None:
            emit(runs)
            return
        (at, size), writer = cut, self.grid.writer
        extent = runs[at].group.extent

        def chunks(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            with writer.loop(0, -(-extent // size)) as loop:
                part = chunk_span(writer, loop.counter, extent, size)
                emit([replace(runs[at], part=part), *runs[at + 1 :]])
            return carried

        run(self.grid.place, runs[:at], chunks)

    @property
    def _runs(self) -> list[Run]:
        return [Run(group, Span(0, group.extent)) for group in self.inner]

    @property
    def cut(self) -> tuple[int, int] | None:
        """Which reduction loop is cut into chunks, and how long they are."""
        extents = [group.extent for group in self.inner]
        if not self.terms or 0 in extents:
            return None
        return chunk_of_terms(extents, 1, self.terms)

    def _added(self, factors: Sequence[SSAValue], lanes: int, old: SSAValue) -> SSAValue:
        writer, (lhs, rhs) = self.grid.writer, factors
        if lanes:
            return writer.add(alike(vector.FMAOp, lhs, rhs, old))
        product = writer.add(alike(arith.MulfOp, lhs, rhs))
        return writer.add(alike(arith.AddfOp, old, product))

    def factor(self, access: Access, lanes: int) -> SSAValue:
        """A factor for all lanes; what several rows or vectors need is loaded once."""
        writer = self.grid.writer
        memory, index = self.grid.place.of(access)
        if lanes and self.grid.contiguous(access):
            return writer.vector_load_input(memory, index, lanes)
        return in_lanes(writer, writer.load_input(memory, index), lanes)


class Loaded:
    """The factors of one step, each found once for all products that it is in."""

    def __init__(self, kernel: MicroKernel) -> None:
        self.kernel, self.grid = kernel, kernel.grid
        along = (self.grid.row, self.grid.line)
        self.by_row = [
            any(dim is not None and access.form.uses(dim) for dim in along)
            for access in kernel.factors
        ]
        self.by_lane = [access.form.uses(self.grid.lane) for access in kernel.factors]
        self.known: dict[tuple[int, int | None, Column | int], SSAValue] = {}

    def factors(self, row: int, column: Column) -> list[SSAValue]:
        return [self._factor(number, row, column) for number in range(len(self.by_row))]

    def _factor(self, number: int, row: int, column: Column) -> SSAValue:
        lanes = lanes_in(column)
        key = (
            number,
            row if self.by_row[number] else None,
            column if self.by_lane[number] else lanes,
        )
        if key not in self.known:
            with self.grid.at(row, column.offset):
                self.known[key] = self.kernel.factor(self.kernel.factors[number], lanes)
        return self.known[key]
