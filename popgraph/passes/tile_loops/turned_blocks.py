"""How does a square of elements change rows for columns in registers?"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.passes.tile_loops.vectors import lanes_of
from popgraph.passes.tile_loops.writer import Writer


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
