"""Loop-carried accumulators of reductions; sums restart in each chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, FloatAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.tile.structured.combiners import Combiner, combiners_of, identity_of
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.emit import chunks
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, whole
from popgraph.passes.structured.to_loops.emit.chunks import LevelLoops
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.vectors import (
    Emit,
    NestLoop,
    in_lanes,
    lanes_of,
    write_nest,
)
from popgraph.support.tuning import Target


def type_of(attribute: Attribute) -> Attribute:
    """The type of a scalar literal."""
    assert isinstance(attribute, FloatAttr | IntegerAttr)
    kind: Attribute = attribute.type
    return kind


def chain_terms(op: tile.ReduceOp, target: Target) -> int:
    """Terms of the longest chain of float32 additions in a reduction."""
    # A portable contraction has the chunks of its register tiles, whether or not it has tiles.
    as_tiles = target.portable and tile.is_contraction(op)
    return target.tuning.chain_terms if as_tiles else target.tuning.partial_sums


class Accumulation:
    """
    The reduction loops of one kernel, which carry accumulators.

    Carried values are the accumulators of one vector after the other, each in the order of the
    reduction.
    """

    def __init__(
        self,
        point: IterationPoint,
        op: tile.ReduceOp,
        groups: Sequence[Group],
        widths: tuple[int, ...],
    ) -> None:
        self.point, self.op = point, op
        self.writer = point.writer
        self.roles = list(zip(combiners_of(op.body.block, len(op.inputs)), op.initial, strict=True))
        self.empty = 0 in op.sizes[op.parallel_rank :]
        self.nest = [NestLoop(group, whole(self.writer, group)) for group in groups]
        if self.nest:
            self.nest[-1] = replace(self.nest[-1], widths=widths)

    def fold(self, start: list[SSAValue], step: Emit, width: int) -> list[SSAValue]:
        """Writes the loops around `step`; long float32 sums are blocked."""
        # Other sums need no chunks: integers are exact, f64 rounds far below what tests compare.
        if self.empty:
            return start
        terms = chain_terms(self.op, self.writer.target) if self._sums_float32() else 0
        levels = chunks.chunk_levels(self.point, self.nest, terms, width=width)
        return self._level(levels, start, step)

    def _level(
        self, levels: Sequence[LevelLoops], start: list[SSAValue], step: Emit
    ) -> list[SSAValue]:
        """Writes the loops of the last level around the loops of shorter ones."""
        *shorter, loops = levels

        def chunk(_: int, totals: list[SSAValue]) -> list[SSAValue]:
            return self._joined(totals, self._level(shorter, self._fresh(totals), step))

        return write_nest(self.point, loops(), chunk if shorter else step, start)

    def _sums_float32(self) -> bool:
        return any(
            combiner is arith.AddfOp and isinstance(type_of(initial), Float32Type)
            for combiner, initial in self.roles
        )

    def _role(self, number: int) -> tuple[Combiner | None, Attribute]:
        return self.roles[number % len(self.roles)]

    def _fresh(self, totals: Sequence[SSAValue]) -> list[SSAValue]:
        """The values that a chunk starts from: sums from zero, others from their current value."""
        # A maximum has no rounding error to bound: it continues from chunk to chunk.
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
            self.writer.add(create_same_type(arith.AddfOp, total, part))
            if self._role(number)[0] is arith.AddfOp
            else part
            for number, (total, part) in enumerate(zip(totals, parts, strict=True))
        ]
