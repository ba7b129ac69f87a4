"""Lets contractions read factors in the bits in which these are stored."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import reads_whole
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.scalars import widens
from popgraph.dialects.tile.structured.ops import element, yielded
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import erase_unused
from popgraph.passes.tuning import Target
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class ReadNarrow(Pass):
    """
    y = contract x, (widen w)  ->  y = contract x, w

    Where few results share an element of w, its way from memory takes longer than its products:
    half the bytes take half the time. Where many do, it is widened once.
    """

    name = "read-narrow"
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> ReadNarrow:
        return cls(options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, tile.ContractOp) and op.schedule is None and op.words is None:
                self._read_narrow(op)

    def _read_narrow(self, op: tile.ContractOp) -> None:
        if _uses(op) > self.target.tuning.most_narrow_uses:
            return
        views, value = list[tile.ViewOp](), op.rhs
        while isinstance(value.owner, tile.ViewOp):
            views.append(value.owner)
            value = value.owner.source
        wide = value.owner
        if not isinstance(wide, tile.MapOp) or not _only_widens(wide):
            return
        narrow = wide.operands[0]
        for view in reversed(views):
            seen = tile.ViewOp(narrow, tensor(view.output).get_shape())
            insert_made_for(view, seen)
            narrow = seen.output
        op.operands[1] = narrow
        for unread in (*views, wide):
            erase_unused(unread)


def _uses(op: tile.ContractOp) -> int:
    """How many results an element of the right factor is a part of."""
    used = op.input_maps[1].used_dims()
    outer = op.sizes[: op.parallel_rank]
    return prod(size for dim, size in enumerate(outer) if dim not in used)


def _only_widens(op: tile.MapOp) -> bool:
    """Whether a map stores every element in more bits, in its place."""
    if len(op.inputs) != 1 or op.tables or len(op.outputs) != 1:
        return False
    (stored,), (wide,) = op.inputs, op.outputs
    (end,) = yielded(op.body.block)
    alone = isinstance(end.owner, arith.ExtFOp | arith.SIToFPOp) and (
        end.owner.operands[0] is op.body.block.args[0]
    )
    return (
        alone
        and widens(element(stored), element(wide))
        and layout_of(tensor(stored)) == layout_of(tensor(wide))
        and reads_whole(tensor(stored), op.input_maps[0], op.sizes)
    )
