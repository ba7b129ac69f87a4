"""Blocked summation: sums of chunks, and sums of these, bound the error of long sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, Span, ceiling
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop, write_nest
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer

LevelLoops = Callable[[], list[NestLoop]]
"""Returns the loops of one level; called inside the loops of the next level, which bound them."""


def chunk_levels(
    point: IterationPoint, nest: Sequence[NestLoop], terms: int, *, width: int = 1, longer: int = 0
) -> list[LevelLoops]:
    """
    Splits a nest into levels: the loops inside the shortest chunks first, the outermost last.

    The shortest chunks have at most `terms` steps (0: no chunks), of `width` elements in the
    innermost loop. Longer chunks consist of at most `longer` shorter ones, by default
    `Tuning.partial_sums`.
    """
    # Sums over 512 channels have an error of 2.2e-6 of the largest result in one chain, 2.5e-7 in
    # chunks of 144 terms, which take less than 1 % more time (Zen 5).
    levels: list[LevelLoops] = []
    most = longer or point.writer.target.tuning.partial_sums
    cut = chunked_reduction(_extents(nest), width, terms) if terms else None
    while cut is not None:
        nest, inside = _chunked(point, nest, cut)
        levels.append(inside)
        cut = chunked_reduction(_extents(nest), 1, most)
    outermost = list(nest)
    return [*levels, lambda: outermost]


def _extents(nest: Sequence[NestLoop]) -> list[int]:
    return [part.group.extent for part in nest]


def chunked_reduction(extents: Sequence[int], width: int, terms: int) -> tuple[int, int] | None:
    """
    The number of the reduction loop that is cut into chunks, and their length.

    A chunk, with the loops inside it, has at most `terms` steps, of `width` elements in the
    innermost loop. None if the whole reduction has no more. Chunks are fewer than steps if `terms`
    is at least 2.
    """
    # A divisor keeps all chunks equal, with constant bounds: of at most 256 terms, 3,000 are 12
    # chunks of 250. Divisors below half of that would double the additions to totals: 509 is prime,
    # and becomes 255 + 254.
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


def cut_loops(sizes: Mapping[int, int], terms: int, most: int) -> frozenset[int]:
    """
    The reduction loops that chunks cut, at all levels, of loops with these sizes.

    If they stay separate loops, chunks end at the same terms however the others are joined.
    """
    dims = [dim for dim, size in sizes.items() if size > 1]
    extents, found = [sizes[dim] for dim in dims], set[int]()
    cut = chunked_reduction(extents, 1, terms) if terms else None
    while cut is not None:
        at, size = cut
        found.add(dims[at])
        extents = [*extents[:at], -(-extents[at] // size)]
        cut = chunked_reduction(extents, 1, most)
    return frozenset(found)


def _chunked(
    point: IterationPoint, nest: Sequence[NestLoop], cut: tuple[int, int]
) -> tuple[list[NestLoop], LevelLoops]:
    """Cuts a loop of a nest: the loops over chunks, and those inside the current chunk."""
    at, size = cut
    extent, end = nest[at].group.extent, nest[at].part.upper
    chunks = Group((point.new_dim(),), -(-extent // size))
    count = chunks.extent if end == extent else ceiling(point.writer, point.writer.bound(end), size)

    def inside() -> list[NestLoop]:
        part = _span(point.writer, point.indices[chunks.last], end, size)
        return [replace(nest[at], part=part), *nest[at + 1 :]]

    return [*nest[:at], NestLoop(chunks, Span(0, count))], inside


def _span(writer: Writer, number: Index, end: Bound, size: int) -> Span:
    """The range of a chunk, by its number, in a loop that ends at `end`."""
    start = number.scaled(size)
    if isinstance(end, int) and end % size == 0:
        return Span(0, size, start)
    ends = writer.value(start + size), writer.bound(end)
    upper = writer.once(create_same_type(arith.MinSIOp, *ends))
    return Span(writer.value(start), upper)


class Totals(Protocol):
    """Totals by level: level 0 adds terms, higher levels add the totals of the level below."""

    def clear(self, level: int) -> None:
        """Sets the total of a level to zero."""

    def add(self, nest: Sequence[NestLoop]) -> None:
        """Adds the terms of these loops to level 0."""

    def carry(self, level: int) -> None:
        """Adds the total of the level below to a level."""


def blocked_sum(point: IterationPoint, levels: Sequence[LevelLoops], totals: Totals) -> None:
    """Writes the loops of all levels, which leave the sum in the last level of `totals`."""
    *shorter, loops = levels
    level = len(shorter) - 1
    totals.clear(level)

    def chunk(_: int, carried: list[SSAValue]) -> list[SSAValue]:
        if level:
            blocked_sum(point, shorter, totals)
            totals.carry(level)
        else:
            totals.add(shorter[0]())
        return carried

    write_nest(point, loops(), chunk)
