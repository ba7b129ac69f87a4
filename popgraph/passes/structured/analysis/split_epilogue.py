"""Splits a contraction with an epilogue into a plain contraction and a map."""

from __future__ import annotations

from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.structured.ops import element
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import insert_made_for, replace_op
from popgraph.passes.structured.analysis.loops import has_identity_epilogue, tensor


def split_epilogue(op: tile.ReduceOp) -> tile.ReduceOp:
    """
    y = contract(...) epilogue g(..., e)  ->  t = contract(...); y = map g(t, e)

    Returns the plain contraction, which is `op` if its epilogue is the identity.
    """
    if has_identity_epilogue(op):
        return op
    rank, sums = op.parallel_rank, bare_sums(op)
    map_ = tile.MapOp(
        [*sums.outputs, *op.epilogue_inputs],
        [AffineMap.identity(rank), *op.epilogue_input_maps],
        op.sizes[:rank],
        op.epilogue.clone(),
        [element(value) for value in op.outputs],
    )
    insert_made_for(op, sums)
    for old, new in zip(op.outputs, map_.outputs, strict=True):
        set_type(new, tensor(old))
    replace_op(op, map_)
    return sums


def bare_sums(op: tile.ReduceOp, *, by_blocks: bool = False) -> tile.ReduceOp:
    """The contraction without its epilogue; `by_blocks`, the sums of blocks are results."""
    kind = op.sum_type if by_blocks else op.total_type
    epilogue = Block(arg_types=[kind])
    epilogue.add_op(tile.YieldOp(*epilogue.args))
    return tile.ReduceOp(
        op.inputs,
        op.input_maps,
        op.sizes,
        op.blocked_rank if by_blocks else op.parallel_rank,
        list(op.initial),
        op.body.clone(),
        Region(epilogue),
        [kind],
        contracts=True,
        blocks=None if by_blocks else op.blocks,
    )
