"""Lets contractions read factors in the bits in which these are stored."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

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
    half the bytes take half the time. Where many do, it is widened once. What computes w stores it
    in fewer bits, too, if it widens it in the end.
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
        views, wide = list[tile.ViewOp](), op.rhs.owner
        while isinstance(wide, tile.ViewOp):
            views.append(wide)
            wide = wide.source.owner
        narrow = _stored(wide) if isinstance(wide, tile.MapOp) else None
        if narrow is None or isinstance(wide, Block):
            return
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


def _stored(wide: tile.MapOp) -> SSAValue | None:
    """The elements of a map as they are before they are widened; None if they are not."""
    block = wide.body.block
    if len(wide.outputs) != 1 or layout_of(tensor(wide.outputs[0])) is not None:
        return None
    maker = yielded(block)[0].owner
    if not isinstance(maker, arith.ExtFOp | arith.SIToFPOp):
        return None
    if not widens(maker.operands[0].type, element(wide.outputs[0])):
        return None
    if maker.operands[0] in block.args and _reads_in_place(wide):
        return wide.inputs[0]
    return _before_last(wide) if wide.outputs[0].has_one_use() else None


def _reads_in_place(wide: tile.MapOp) -> bool:
    """Whether every element comes from where it goes, and from nowhere else."""
    if len(wide.inputs) != 1 or wide.tables:
        return False
    stored = tensor(wide.inputs[0])
    return layout_of(stored) is None and reads_whole(stored, wide.input_maps[0], wide.sizes)


def _before_last(wide: tile.MapOp) -> SSAValue:
    """What a map yields, without the last thing that it does."""
    region = wide.body.clone()
    (end,) = yielded(region.block)
    last, old = end.owner, region.block.last_op
    assert isinstance(last, Operation) and old is not None
    number = last.operands[0]
    Rewriter.erase_op(old)
    Rewriter.erase_op(last)
    region.block.add_op(tile.YieldOp(number))
    made = tile.MapOp(wide.inputs, wide.input_maps, wide.sizes, region, [number.type], wide.tables)
    insert_made_for(wide, made)
    return made.outputs[0]
