"""How do long sums stay accurate? They are made of short ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.passes.tile_loops.access import Group, Place, Span
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.reduction import Combiner, Reduction, identity_of
from popgraph.passes.tile_loops.vectors import Emit, Run, in_lanes, lanes_of, run
from popgraph.passes.tile_loops.writer import Writer

TERMS = 32
"""So many terms are added to one sum before that is added to the total (float32)."""


def chunk_of_terms(extents: Sequence[int], width: int, terms: int) -> tuple[int, int] | None:
    """
    Which reduction loop is cut into chunks, and how long they are.

    Everything inside a chunk is at most `terms` steps, the innermost loop advancing by `width`;
    None when the whole reduction is. A length that divides the loop is taken if it is not short.
    """
    inside = 1
    for at in reversed(range(len(extents))):
        step = width if at == len(extents) - 1 else 1
        steps = -(-extents[at] // step)
        if inside * steps > terms:
            most = max(1, terms // inside)
            even = [size for size in range(max(1, most // 2), most + 1) if steps % size == 0]
            size = max(even) if even else -(-steps // -(-steps // most))
            return at, size * step
        inside *= steps
    return None


def chunk_span(writer: Writer, counter: SSAValue, extent: int, size: int) -> Span:
    """The part of a loop that chunk number `counter` has."""
    start = Index.of(counter, size)
    if extent % size == 0:
        return Span(0, size, start)
    end = writer.once(arith.MinSIOp(writer.value(start + size), writer.constant(extent)))
    return Span(writer.value(start), end)


def type_of(attribute: Attribute) -> Attribute:
    """The type of a scalar literal."""
    assert isinstance(attribute, FloatAttr | IntegerAttr)
    kind: Attribute = attribute.type
    return kind


class Sums:
    """
    The reduction loops of one kernel.

    The values that they carry stand for the accumulators of the reduction, in turn.
    """

    def __init__(
        self, place: Place, what: Reduction, groups: Sequence[Group], widths: tuple[int, ...]
    ) -> None:
        self.place = place
        self.writer = place.writer
        self.roles = list(zip(what.combiners, what.initial, strict=True))
        self.empty = 0 in what.sizes[what.parallel :]
        self.runs = [Run(group, Span(0, group.extent)) for group in groups]
        if self.runs:
            self.runs[-1] = replace(self.runs[-1], widths=widths)

    def fold(self, start: list[SSAValue], step: Emit, width: int) -> list[SSAValue]:
        """The loops around `step`; long float32 sums go by chunks."""
        if self.empty:
            return start
        runs = self.runs
        cut = chunk_of_terms([part.group.extent for part in runs], width, TERMS)
        if cut is None or not self._sums_float32():
            return run(self.place, runs, step, start)
        at, size = cut

        def chunks(_: int, values: list[SSAValue]) -> list[SSAValue]:
            extent = runs[at].group.extent
            with self.writer.loop(0, -(-extent // size), 1, values) as loop:
                part = chunk_span(self.writer, loop.counter, extent, size)
                rest = [replace(runs[at], part=part), *runs[at + 1 :]]
                sums = run(self.place, rest, step, self._fresh(loop.carried))
                loop.next(self._joined(loop.carried, sums))
            return loop.results

        return run(self.place, runs[:at], chunks, start)

    def _sums_float32(self) -> bool:
        return any(
            combiner is arith.AddfOp and isinstance(type_of(initial), Float32Type)
            for combiner, initial in self.roles
        )

    def _role(self, number: int) -> tuple[Combiner | None, Attribute]:
        return self.roles[number % len(self.roles)]

    def _fresh(self, totals: Sequence[SSAValue]) -> list[SSAValue]:
        """What a chunk starts from: sums from nothing, everything else from where it is."""
        result = []
        for number, total in enumerate(totals):
            combiner, initial = self._role(number)
            if combiner is arith.AddfOp:
                nothing = self.writer.literal(identity_of(combiner, initial))
                total = in_lanes(self.writer, nothing, lanes_of(total))
            result.append(total)
        return result

    def _joined(self, totals: Sequence[SSAValue], parts: Sequence[SSAValue]) -> list[SSAValue]:
        """The totals after a chunk."""
        return [
            self.writer.add(arith.AddfOp(total, part))
            if self._role(number)[0] is arith.AddfOp
            else part
            for number, (total, part) in enumerate(zip(totals, parts, strict=True))
        ]
