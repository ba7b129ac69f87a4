"""Chunked summation: long sums are made of short ones, so that they stay accurate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, Span, ceiling
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import Run, run
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer

LevelLoops = Callable[[], list[Run]]
"""The loops of one level, to be asked where the loops of the next one are open."""


def by_chunks(
    point: IterationPoint, runs: Sequence[Run], terms: int, *, width: int = 1, longer: int = 0
) -> list[LevelLoops]:
    """
    A nest of loops by levels: those inside of the shortest chunks first, those around all last.

    The shortest chunks have at most `terms` steps (0: all of them), the innermost loop advancing
    by `width`. Longer ones have at most `longer` of the next shorter ones,
    `Tuning.partial_sums` by default.
    """
    levels: list[LevelLoops] = []
    most = longer or point.writer.target.tuning.partial_sums
    cut = chunked_reduction(_extents(runs), width, terms) if terms else None
    while cut is not None:
        runs, inside = _chunked(point, runs, cut)
        levels.append(inside)
        cut = chunked_reduction(_extents(runs), 1, most)
    outermost = list(runs)
    return [*levels, lambda: outermost]


def _extents(runs: Sequence[Run]) -> list[int]:
    return [part.group.extent for part in runs]


def chunked_reduction(extents: Sequence[int], width: int, terms: int) -> tuple[int, int] | None:
    """
    Which reduction loop is cut into chunks, and how long they are.

    Everything inside a chunk is at most `terms` steps, the innermost loop advancing by `width`;
    None when the whole reduction is. A length that divides the loop is taken if it is not short;
    chunks are fewer than steps, if `terms` is at least 2.
    """
    inside = 1
    for at in reversed(range(len(extents))):
        step = width if at == len(extents) - 1 else 1
        steps = -(-extents[at] // step)
        if inside * steps > terms:
            most = max(1, terms // inside)
            even = [size for size in range(max(2, most // 2), most + 1) if steps % size == 0]
            size = max(even) if even else -(-steps // -(-steps // most))
            return at, size * step
        inside *= steps
    return None


def _chunked(
    point: IterationPoint, runs: Sequence[Run], cut: tuple[int, int]
) -> tuple[list[Run], LevelLoops]:
    """The loops around the chunks of a nest, and inside of them those of the current chunk."""
    at, size = cut
    extent, end = runs[at].group.extent, runs[at].part.upper
    chunks = Group((point.new_dim(),), -(-extent // size))
    count = chunks.extent if end == extent else ceiling(point.writer, point.writer.bound(end), size)

    def inside() -> list[Run]:
        part = _span(point.writer, point.indices[chunks.last], end, size)
        return [replace(runs[at], part=part), *runs[at + 1 :]]

    return [*runs[:at], Run(chunks, Span(0, count))], inside


def _span(writer: Writer, number: Index, end: Bound, size: int) -> Span:
    """The part of a loop that a chunk has, by its number."""
    start = number.scaled(size)
    if isinstance(end, int) and end % size == 0:
        return Span(0, size, start)
    upper = writer.once(arith.MinSIOp(writer.value(start + size), writer.bound(end)))
    return Span(writer.value(start), upper)


class Totals(Protocol):
    """Sums in memory, by levels: the first takes in terms, each of the others the one before."""

    def clear(self, level: int) -> None:
        """The sum of nothing."""

    def add(self, runs: Sequence[Run]) -> None:
        """The first takes in the terms that these loops go over."""

    def carry(self, level: int) -> None:
        """Takes in the sum of the level before."""


def add_up(point: IterationPoint, levels: Sequence[LevelLoops], totals: Totals) -> None:
    """Writes the loops of all levels; the last of `totals` is the sum of all terms then."""
    *shorter, loops = levels
    level = len(shorter) - 1
    totals.clear(level)

    def chunk(_: int, carried: list[SSAValue]) -> list[SSAValue]:
        if level:
            add_up(point, shorter, totals)
            totals.carry(level)
        else:
            totals.add(shorter[0]())
        return carried

    run(point, loops(), chunk)
