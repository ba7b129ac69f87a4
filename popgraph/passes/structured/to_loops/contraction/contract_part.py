"""Emits a scheduled contraction for a slice of its leading loops, inside a fused kernel."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.dialects import tile
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.passes.structured.to_loops.emit.access import Access, IterationPoint, Source
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.shapes import Shape
from popgraph.support.tuning import Target


class ContractPart:
    """
    Writes the loops of a contraction over a `window` of its domain, from where a point stands.

    They are those of a contraction of just that size, whose operands begin further on in memory.
    """

    def __init__(
        self, op: tile.ReduceOp, schedule: ScheduleAttr, target: Target, window: Shape
    ) -> None:
        self.values = [value for value, _ in op.mapped]
        self.forms = [offset(tensor(value), map_, op.sizes) for value, map_ in op.mapped]
        self.partial = [dim for dim, size in enumerate(window) if size < op.sizes[dim]]
        self._op, self._schedule, self._target, self._window = op, schedule, target, window

    @property
    def ends_at_sizes(self) -> bool:
        """Whether all loops that are to run as far as a size of the call do so."""
        return ContractLoops(self._op, self._schedule, self._target).ends_at_sizes

    def write_at(self, point: IterationPoint, sources: Sequence[Source]) -> None:
        """Writes the loops; `sources` tells where each of `values` is."""
        part = self._op.clone()
        part.properties["domain"] = IntsAttr.of(self._window)
        starts = []
        for source, form in zip(sources, self.forms, strict=True):
            assert isinstance(source, Access), "a row of a product is no register"
            starts.append((source.memory, source.start + self._begin(form, point)))
        ContractLoops(part, self._schedule, self._target).write_at(point.writer, starts)
        part.erase()

    def _begin(self, form: Linear, point: IterationPoint) -> Index:
        """How far on the part of an operand begins."""
        total = Index()
        for dim in self.partial:
            stride = form.stride(dim)
            assert stride is not None, f"the parts along loop {dim} are not evenly apart"
            total = total + point.indices[dim].scaled(stride)
        return total
