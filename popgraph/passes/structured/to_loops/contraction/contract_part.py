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
    Writes the loops of a contraction for a window of its domain.

    A window is a contraction of its own, of a smaller domain, whose operands begin later in memory.
    """

    def __init__(self, op: tile.ReduceOp, schedule: ScheduleAttr, target: Target) -> None:
        self.values = [value for value, _ in op.mapped]
        self.forms = [offset(tensor(value), map_, op.sizes) for value, map_ in op.mapped]
        self._op, self._schedule, self._target = op, schedule, target

    @property
    def ends_at_sizes(self) -> bool:
        """Whether every loop that ends at a size of the call does so, none at its bound."""
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

        `starts` has the memory of each of `values` and where the window begins in it. `types` has
        the types of values that are local, whose memory holds one window.
        """
        # A clone: the contraction itself keeps its domain, from which the next window is cut.
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
