"""Emits a scheduled contraction for a window of its domain, inside a fused kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.rewriter import Rewriter

from popgraph.dialects import tile
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.support.shapes import Shape
from popgraph.support.tuning import Target


class ContractPart:
    """
    Writes the loops of a contraction over a window of its domain.

    They are those of a contraction of just that size, whose operands begin further on in memory.
    """

    def __init__(self, op: tile.ReduceOp, schedule: ScheduleAttr, target: Target) -> None:
        self.values = [value for value, _ in op.mapped]
        self.forms = [offset(tensor(value), map_, op.sizes) for value, map_ in op.mapped]
        self._op, self._schedule, self._target = op, schedule, target

    @property
    def ends_at_sizes(self) -> bool:
        """Whether all loops that are to run as far as a size of the call do so."""
        return ContractLoops(self._op, self._schedule, self._target).ends_at_sizes

    def write_at(
        self,
        writer: Writer,
        starts: Sequence[tuple[SSAValue, Index]],
        window: Shape,
        types: Mapping[SSAValue, TensorType[Attribute]],
    ) -> None:
        """
        Writes the loops.

        `starts` tells in which memory each of `values` is, and from where on; `types` what there is
        of those that are local.
        """
        part = self._op.clone()
        part.operands = Block(
            arg_types=[types.get(value, value.type) for value in part.operands]
        ).args
        part.properties["domain"] = IntsAttr.of(window)
        for mine, value in zip(part.outputs, self._op.outputs, strict=True):
            if value in types:
                Rewriter.replace_value_with_new_type(mine, types[value])
        ContractLoops(part, self._schedule, self._target).write_at(writer, starts)
        part.erase()
