"""Splits contractions: into sums and a map, or into sums of blocks and a reduction."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.structured.ops import element
from popgraph.dialects.tile.structured.product import zero_of
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import insert_made_for, replace_op
from popgraph.passes.structured.analysis.loops import has_identity_epilogue, tensor
from popgraph.passes.structured.analysis.operand_maps import moved


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


def split_blocks(op: tile.ReduceOp) -> None:
    """
    y = contract over b, k ... block f  ->  t = contract over k ...; y = reduce over b: f(t)

    t holds the sums of all blocks in memory.
    """
    assert op.block is not None, "the contraction has blocks"
    outer, kind = op.sizes[: op.blocked_rank], op.sum_type
    sums = bare_sums(op, by_blocks=True)
    total = op.total_type
    body = Block(arg_types=[kind, *map(element, op.block_inputs), total])
    *read, before = body.args
    (added,) = moved(body, op.block.clone().block, read)
    joined = arith.AddfOp if isinstance(total, AnyFloat) else arith.AddiOp
    sum_ = joined(before, added)
    body.add_ops([sum_, tile.YieldOp(sum_)])
    reduced = tile.ReduceOp(
        [*sums.outputs, *op.block_inputs],
        [AffineMap.identity(len(outer)), *op.block_input_maps],
        outer,
        op.parallel_rank,
        [zero_of(total)],
        Region(body),
        op.epilogue.clone(),
        [element(value) for value in op.outputs],
        op.epilogue_inputs,
        op.epilogue_input_maps,
    )
    insert_made_for(op, sums)
    for old, new in zip(op.outputs, reduced.outputs, strict=True):
        set_type(new, tensor(old))
    replace_op(op, reduced)


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
