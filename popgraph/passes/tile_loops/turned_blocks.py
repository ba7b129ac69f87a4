"""How do elements that stand across move? In squares that change rows for columns in registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from xdsl.ir import SSAValue

from popgraph.dialects.tile.affine import Linear
from popgraph.passes.tile_loops.access import Group, Place
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.vectors import Run, lanes_of, run
from popgraph.passes.tile_loops.writer import Writer

MOST_TURNED = 16
"""A square of so many rows stays in registers."""

NEIGHBOURS = 2
"""Lines that come from memory together."""


@dataclass(frozen=True)
class Ends:
    """From where elements move to where."""

    source: SSAValue
    source_form: Linear
    target: SSAValue
    target_form: Linear

    def squares(self, place: Place, groups: Sequence[Group], lanes: int) -> Squares | None:
        """
        Where neighbours in the target are none in the source, but those of another loop are.

        Only when both loops are long enough for squares of so many lanes.
        """
        if not groups or lanes < 2 or self.target_form.stride(groups[-1].last) != 1:
            return None
        *outer, inner = groups
        if self.source_form.stride(inner.last) in (0, 1):
            return None
        across = next((one for one in outer if self.source_form.stride(one.last) == 1), None)
        if across is None or lanes > min(MOST_TURNED, across.extent, inner.extent):
            return None
        return Squares(place, self, across, inner, lanes)


@dataclass(frozen=True)
class Squares:
    """
    Squares of so many lanes are loaded by rows and stored by columns; edges go one by one.

    Squares that are written one behind the other follow each other: a cache fetches ahead what is
    to be written so. Where lines are read from afar, it also brings the ones beside them, so that
    they are turned at once.
    """

    place: Place
    ends: Ends
    across: Group
    """The loop along which neighbours in the source are."""
    inner: Group
    """The same of the target."""
    lanes: int

    def write(self, runs: Sequence[Run]) -> None:
        """Writes the loops; the last one is the inner one."""
        along = next(one for one in runs if one.group == self.across)
        outer = [one for one in runs[:-1] if one is not along]
        widths = (NEIGHBOURS * self.lanes, self.lanes, 1)

        def columns(width: int, carried: list[SSAValue]) -> list[SSAValue]:
            def rows(height: int, carried: list[SSAValue]) -> list[SSAValue]:
                self._block(height, width)
                return carried

            return run(self.place, [replace(runs[-1], widths=(self.lanes, 1))], rows, carried)

        run(self.place, [*outer, replace(along, widths=widths)], columns)

    def _block(self, height: int, width: int) -> None:
        """So many rows of so many neighbours in the source."""
        if height < self.lanes or width < self.lanes:
            self._one_by_one(height, width)
        elif width == self.lanes:
            self._square()
        else:
            place, last = self.place, self.across.last
            start = place.where[last]
            with place.writer.loop(0, width, self.lanes) as loop:
                place.where[last] = start + Index.of(loop.counter)
                self._square()
            place.where[last] = start

    def _square(self) -> None:
        place, ends, values = self.place, self.ends, list[SSAValue]()
        for step in range(self.lanes):
            with place.shifted(self.inner.last, step):
                index = place.index(ends.source_form)
                values.append(place.writer.vector_load(ends.source, index, self.lanes))
        for step, value in enumerate(turned(place.writer, values)):
            with place.shifted(self.across.last, step):
                index = place.index(ends.target_form)
                place.writer.vector_store(value, ends.target, index)

    def _one_by_one(self, height: int, width: int) -> None:
        place, ends = self.place, self.ends
        for step, further in product(range(height), range(width)):
            with place.shifted(self.inner.last, step), place.shifted(self.across.last, further):
                value = place.writer.load(ends.source, place.index(ends.source_form))
                place.writer.store(value, ends.target, place.index(ends.target_form))


def turned(writer: Writer, rows: Sequence[SSAValue]) -> list[SSAValue]:
    """
    The columns of a square, as vectors.

    First all squares of two by two are turned, then those of four by four that consist of them,
    and so on: half of what stands in a row changes places with half of the row that is as far
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
