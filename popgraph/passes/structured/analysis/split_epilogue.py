"""Splits a contraction with an epilogue into a plain contraction and a map."""

from __future__ import annotations

from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.structured.analysis.loops import keeps_sums, tensor
from popgraph.passes.structured.analysis.operand_maps import set_type_in_place


def without_finish(op: tile.ContractOp) -> tile.ContractOp:
    """
    y = contract(...) finish g(..., e)  ->  t = contract(...); y = map g(t, e)

    Only when the finish does something; else it is the contraction itself.
    """
    if keeps_sums(op):
        return op
    rank, kind = op.parallel_rank, element(op.lhs)
    finish = Block(arg_types=[kind])
    finish.add_op(tile.YieldOp(*finish.args))
    sums = tile.ContractOp(op.lhs, op.rhs, op.input_maps, op.sizes, rank, Region(finish), [kind])
    map_ = tile.MapOp(
        [*sums.outputs, *op.extras],
        [AffineMap.identity(rank), *(map_.data for map_ in op.extra_maps)],
        op.sizes[:rank],
        op.finish.clone(),
        [element(value) for value in op.outputs],
    )
    sums.location = map_.location = op.location
    Rewriter.insert_op(sums, InsertPoint.before(op))
    for old, new in zip(op.outputs, map_.outputs, strict=True):
        set_type_in_place(new, tensor(old))
    replace_op(op, map_)
    return sums
