"""Transposition in registers: squares change rows for columns on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from xdsl.ir import SSAValue

from popgraph.dialects.tile.affine import Linear
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, Span
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import Run, lanes_of, run
from popgraph.passes.structured.to_loops.emit.writer import Writer


@dataclass(frozen=True)
class CopyPlan:
    """From where elements move to where, and what becomes of them, or of so many lanes of them."""

    source: SSAValue
    source_form: Linear
    target: SSAValue
    target_form: Linear
    made: Callable[[SSAValue, int], SSAValue] = lambda value, _: value

    def squares(
        self, point: IterationPoint, groups: Sequence[Group], lanes: int, cut: Group | None = None
    ) -> BlockTranspose | None:
        """
        Where neighbours in the target are none in the source, but those of another loop are.

        Only when the loop is long enough for squares of so many lanes, and the other one for more
        than half of them; else they have half as many lanes, or fewer. Chunks have parts of the
        `cut` loop.
        """
        most = point.writer.target.tuning.most_transposed
        sizes = [lanes >> step for step in range(lanes.bit_length())]
        plans = [self._squares(point, groups, one, cut) for one in sizes if 1 < one <= most]
        possible = [one for one in plans if one is not None]
        return min(possible, key=lambda one: one.instructions, default=None)

    def _squares(
        self, point: IterationPoint, groups: Sequence[Group], lanes: int, cut: Group | None
    ) -> BlockTranspose | None:
        if not groups or self.target_form.stride(groups[-1].last) != 1:
            return None
        *outer, inner = groups
        if self.source_form.stride(inner.last) in (0, 1):
            return None
        across = next((one for one in outer if self.source_form.stride(one.last) == 1), None)
        if across is None or lanes > min(2 * across.extent - 1, inner.extent):
            return None
        beyond = None
        if across.extent < lanes:
            if across.running is not None:
                return None
            loops = [one for one in outer if one not in (across, cut)]
            beyond = self._beyond(loops, lanes - across.extent)
            if beyond is None:
                return None
        return BlockTranspose(point, self, across, inner, lanes, beyond)

    def _beyond(self, loops: Sequence[Group], count: int) -> Group | None:
        """The longest loop that has so many elements of the source behind all but its last step."""
        ends = [one for one in loops if one.running is None]
        fit = [one for one in ends if (self.source_form.stride(one.last) or 0) >= count]
        return max(fit, key=lambda one: one.extent, default=None)


@dataclass(frozen=True)
class BlockTranspose:
    """
    Squares of so many lanes are loaded by rows and stored by columns; edges go one by one.

    Squares that are written one behind the other follow each other: a cache fetches ahead what is
    to be written so. Where lines are read from afar, it also brings the ones beside them, so that
    they are transposed at once.
    """

    point: IterationPoint
    ends: CopyPlan
    across: Group
    """The loop along which neighbours in the source are."""
    inner: Group
    """The same of the target."""
    lanes: int
    beyond: Group | None
    """
    Where rows of a square are shorter than vectors, which read on then: the loop that has memory
    behind them, but in its last step. Of it and the inner one, that of neighbours is inside.
    """

    @property
    def instructions(self) -> float:
        """For an element: loads, exchanges and stores of vectors; one for what goes by itself."""
        extent, lanes = self.across.extent, self.lanes
        whole, rest = (1, 0) if self.beyond is not None else divmod(extent, lanes)
        square = lanes * lanes.bit_length() + min(lanes, extent)
        return (whole * square / lanes + rest) / extent

    def write(self, runs: Sequence[Run]) -> None:
        """Writes the loops; the last one is the inner one."""
        *outer, inner = runs
        along = next(one for one in outer if one.group == self.across)
        outer.remove(along)
        if self.beyond is None:
            together = self.point.writer.target.machine.lines_together
            widths = (together * self.lanes, self.lanes, 1)
            self._loops(outer, replace(along, widths=widths), inner)
            return
        short = next(one for one in outer if one.group == self.beyond)
        outer.remove(short)
        whole = replace(along, widths=(self.across.extent,))
        last = self.beyond.extent - 1
        for part, columns in ((Span(0, last), whole), (Span(last, last + 1), along)):
            around = replace(short, part=part)
            if self._distance(self.beyond) < self._distance(self.inner):
                self._loops(outer, columns, inner, [around])
            else:
                self._loops([*outer, around], columns, inner)

    def _distance(self, group: Group) -> int:
        """How far apart neighbours along a loop are in the source."""
        return self.ends.source_form.stride(group.last) or 0

    def _loops(
        self, outer: Sequence[Run], along: Run, inner: Run, inside: Sequence[Run] = ()
    ) -> None:
        """All rows of squares, and each square of a row; the loops `inside` go on where one is."""

        def columns(width: int, carried: list[SSAValue]) -> list[SSAValue]:
            def rows(height: int, carried: list[SSAValue]) -> list[SSAValue]:
                def block(_: int, carried: list[SSAValue]) -> list[SSAValue]:
                    self._block(height, width)
                    return carried

                return run(self.point, inside, block, carried)

            return run(self.point, [replace(inner, widths=(self.lanes, 1))], rows, carried)

        run(self.point, [*outer, along], columns)

    def _block(self, height: int, width: int) -> None:
        """So many rows of so many neighbours in the source."""
        if height < self.lanes or width < min(self.lanes, self.across.extent):
            self._one_by_one(height, width)
        elif width <= self.lanes:
            self._square()
        else:
            point, last = self.point, self.across.last
            start = point.indices[last]
            with point.writer.loop(0, width, self.lanes) as loop:
                point.indices[last] = start + Index.of(loop.counter)
                self._square()
            point.indices[last] = start

    def _square(self) -> None:
        point, ends, values = self.point, self.ends, list[SSAValue]()
        for step in range(self.lanes):
            with point.shifted(self.inner.last, step):
                index = point.index(ends.source_form)
                loaded = point.writer.vector_load(ends.source, index, self.lanes)
                values.append(ends.made(loaded, self.lanes))
        columns = transposed(point.writer, values)[: self.across.extent]
        for step, value in enumerate(columns):
            with point.shifted(self.across.last, step):
                index = point.index(ends.target_form)
                point.writer.vector_store(value, ends.target, index)

    def _one_by_one(self, height: int, width: int) -> None:
        point, ends = self.point, self.ends
        for step, further in product(range(height), range(width)):
            with point.shifted(self.inner.last, step), point.shifted(self.across.last, further):
                loaded = point.writer.load(ends.source, point.index(ends.source_form))
                value = ends.made(loaded, 0)
                point.writer.store(value, ends.target, point.index(ends.target_form))


def transposed(writer: Writer, rows: Sequence[SSAValue]) -> list[SSAValue]:
    """
    The columns of a square, as vectors.

    First all squares of two by two are transposed, then those of four by four that consist of them,
    and so on: half of what stands in a row is exchanged for half of the row that is as far
    below as it is to the right.
    """
    lanes = lanes_of(rows[0])
    assert len(rows) == lanes and lanes & (lanes - 1) == 0, "a square, some power of two"
    found, half = list(rows), 1
    while half < lanes:
        for upper in (row for row in range(lanes) if not row & half):
            pair = found[upper], found[upper + half]
            found[upper] = writer.shuffle(
                *pair, [_from(lane, half, lanes) for lane in range(lanes)]
            )
            picks = [_from(lane, half, lanes) + half for lane in range(lanes)]
            found[upper + half] = writer.shuffle(*pair, picks)
        half *= 2
    return found


def _from(lane: int, half: int, lanes: int) -> int:
    """Where the upper of two rows gets a lane from: its own left half, and that of the lower."""
    return lanes + lane - half if lane & half else lane
