"""Splits a contraction with an epilogue into a plain contraction and a map."""

from __future__ import annotations

from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.analysis.replace import insert_made_for, replace_op
from popgraph.passes.structured.analysis.loops import has_identity_epilogue, tensor
from popgraph.passes.structured.analysis.operand_maps import set_type_in_place


def split_epilogue(op: tile.ContractOp) -> tile.ContractOp:
    """
    y = contract(...) epilogue g(..., e)  ->  t = contract(...); y = map g(t, e)

    Only when the epilogue does something; else it is the contraction itself.
    """
    if has_identity_epilogue(op):
        return op
    rank, kind = op.parallel_rank, op.total_type
    epilogue = Block(arg_types=[kind])
    epilogue.add_op(tile.YieldOp(*epilogue.args))
    sums = tile.ContractOp(
        op.lhs,
        op.rhs,
        op.input_maps,
        op.sizes,
        rank,
        Region(epilogue),
        [kind],
        words=op.words,
        parts=op.parts,
        numbers=op.numbers,
        blocks=op.blocks,
    )
    map_ = tile.MapOp(
        [*sums.outputs, *op.epilogue_inputs],
        [AffineMap.identity(rank), *op.epilogue_input_maps],
        op.sizes[:rank],
        op.epilogue.clone(),
        [element(value) for value in op.outputs],
    )
    insert_made_for(op, sums)
    for old, new in zip(op.outputs, map_.outputs, strict=True):
        set_type_in_place(new, tensor(old))
    replace_op(op, map_)
    return sums
