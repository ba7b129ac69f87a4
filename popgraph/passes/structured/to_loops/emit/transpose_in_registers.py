"""Transposition in registers: copies load square blocks by rows and store them by columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from xdsl.ir import SSAValue

from popgraph.dialects.tile.affine import Linear
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, Span
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop, lanes_of, write_nest
from popgraph.passes.structured.to_loops.emit.writer import Writer


@dataclass(frozen=True)
class CopyPlan:
    """A copy between two memories; `convert` maps each element, or vector of lanes, on the way."""

    source: SSAValue
    source_form: Linear
    target: SSAValue
    target_form: Linear
    convert: Callable[[SSAValue, int], SSAValue] = lambda value, _: value

    def squares(
        self, point: IterationPoint, groups: Sequence[Group], lanes: int, cut: Group | None = None
    ) -> BlockTranspose | None:
        """
        The block transpose of this copy; None if none fits.

        The target is contiguous along the innermost loop, the source along another one. A block of
        n lanes needs n iterations of the former, and more than n / 2 of the latter. Chunks share
        the `cut` loop.
        """
        # Few columns take smaller blocks: with 4 columns and 16 lanes, 16x16 blocks would compute
        # mostly padding (bb4d8297).
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
        # Stride 1 on both sides is a copy of vectors, and stride 0 a broadcast: neither needs
        # shuffles.
        if self.source_form.stride(inner.last) in (0, 1):
            return None
        across = next((one for one in outer if self.source_form.stride(one.last) == 1), None)
        if across is None or lanes > min(2 * across.extent - 1, inner.extent):
            return None
        # Rows shorter than a vector: loads read on into the next iteration of another loop, so one
        # with enough memory must exist. A row that ends at a size could be of any length.
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
        """The longest loop with `count` source elements after each iteration but its last."""
        ends = [one for one in loops if one.running is None]
        fit = [one for one in ends if (self.source_form.stride(one.last) or 0) >= count]
        return max(fit, key=lambda one: one.extent, default=None)


@dataclass(frozen=True)
class BlockTranspose:
    """
    Loads blocks of `lanes` x `lanes` elements by rows and stores them by columns; edges one by one.

    Blocks are stored in memory order, which hardware prefetchers follow. Rows of the source are
    distant: blocks from `Machine.lines_together` lines are transposed together, as memory delivers
    adjacent lines together.
    """

    point: IterationPoint
    ends: CopyPlan
    across: Group
    """The loop along which the source is contiguous."""
    inner: Group
    """The loop along which the target is contiguous."""
    lanes: int
    beyond: Group | None
    """
    The loop whose next iteration is what loads read after a row shorter than a vector.

    None if rows fill vectors. Its last iteration copies one by one.
    """

    @property
    def instructions(self) -> float:
        """Instructions per element: of vectors in blocks, 1 for a scalar copy."""
        extent, lanes = self.across.extent, self.lanes
        whole, rest = (1, 0) if self.beyond is not None else divmod(extent, lanes)
        # A block takes `lanes` loads, lanes * log2(lanes) shuffles, and a store for each column.
        square = lanes * lanes.bit_length() + min(lanes, extent)
        return (whole * square / lanes + rest) / extent

    def write(self, nest: Sequence[NestLoop]) -> None:
        """Writes the loops; the last of `nest` is the inner one."""
        *outer, inner = nest
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
        # After the rows of the last iteration, memory may end: a vector load could fault.
        last = self.beyond.extent - 1
        for part, columns in ((Span(0, last), whole), (Span(last, last + 1), along)):
            around = replace(short, part=part)
            if self._distance(self.beyond) < self._distance(self.inner):
                self._loops(outer, columns, inner, [around])
            else:
                self._loops([*outer, around], columns, inner)

    def _distance(self, group: Group) -> int:
        """The source stride of a loop, in elements."""
        return self.ends.source_form.stride(group.last) or 0

    def _loops(
        self,
        outer: Sequence[NestLoop],
        along: NestLoop,
        inner: NestLoop,
        inside: Sequence[NestLoop] = (),
    ) -> None:
        """Writes the loops over blocks; the loops `inside` are the innermost."""

        def columns(width: int, carried: list[SSAValue]) -> list[SSAValue]:
            def rows(height: int, carried: list[SSAValue]) -> list[SSAValue]:
                def block(_: int, carried: list[SSAValue]) -> list[SSAValue]:
                    self._block(height, width)
                    return carried

                return write_nest(self.point, inside, block, carried)

            return write_nest(self.point, [replace(inner, widths=(self.lanes, 1))], rows, carried)

        write_nest(self.point, [*outer, along], columns)

    def _block(self, height: int, width: int) -> None:
        """Copies a block of `height` source rows with `width` contiguous elements each."""
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
                values.append(ends.convert(loaded, self.lanes))
        # Columns past the end of a row hold what loads read after it.
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
                value = ends.convert(loaded, 0)
                point.writer.store(value, ends.target, point.index(ends.target_form))


def transposed(writer: Writer, rows: Sequence[SSAValue]) -> list[SSAValue]:
    """
    The columns of a square block of rows, as vectors.

    Step k exchanges the off-diagonal quarters of all blocks of 2^(k + 1) rows: log2(lanes) steps of
    `lanes` shuffles.
    """
    lanes = lanes_of(rows[0])
    assert len(rows) == lanes and lanes & (lanes - 1) == 0, "blocks have 2^n rows of 2^n lanes"
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
    """The source of a lane in the upper of two rows: their left halves alternate."""
    return lanes + lane - half if lane & half else lane
