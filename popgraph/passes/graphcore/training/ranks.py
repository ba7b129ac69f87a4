"""Data parallelism over ranks: all-reduced gradients and sharded weights."""

from __future__ import annotations

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.ir import Operation, SSAValue, Use
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.graphcore.broadcasting import reshaped
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.dialects.graphcore.lookup import GatherOp
from popgraph.dialects.graphcore.movement import PadOp, SliceOp
from popgraph.dialects.program import VariableOp, WeightStore
from popgraph.passes.graphcore.training.terms import Term
from popgraph.passes.graphcore.training.weight_context import WeightContext
from popgraph.support import dtypes
from popgraph.support.ranks.communicator import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from popgraph.support.shapes import prod

RANK = "Rank___fromHost"
"""Variable with the index of this process, if each updates a shard of the weights."""


def all_reduce_gradient(weight: WeightContext) -> None:
    """Replaces the gradient by its all-reduced sum over the ranks that share the weight."""
    narrow, weight.is_exchanged = weight.spec.message_type, True
    message = weight.gradient.cast(dtypes.BY_NAME[narrow] if narrow else weight.compute)
    row = reshaped(message.operand, (prod(weight.shape),))
    size, stride = weight.spec.ranks, weight.spec.rank_stride
    total = ExchangeOp(row, weight.last, kind=ALL_REDUCE, size=size, stride=stride)
    whole = SSAValue.get(reshaped(total, weight.shape))
    weight.gradient = weight.variables.term(whole).cast(weight.compute)


def take_shard(weight: WeightContext) -> None:
    """
    Replaces weight and gradient by this rank's shard; the gradient is reduce-scattered.

    Called before accumulation, it exchanges the gradients of each micro-batch; called after it,
    their sum.
    """
    ranks, shard = weight.spec.ranks, -(-weight.count // weight.spec.ranks)
    narrow, weight.is_exchanged = weight.spec.message_type, True
    message = weight.gradient.cast(dtypes.BY_NAME[narrow] if narrow else weight.compute)
    row = _padded(message.operand, shard * ranks)
    part = ExchangeOp(row, weight.last, kind=REDUCE_SCATTER, size=ranks)
    weight.gradient = weight.variables.term(part.result).cast(weight.compute)
    if weight.is_shard:
        return
    weight.whole = weight.weight
    rows = reshaped(_padded(weight.weight.operand, shard * ranks), (ranks, shard))
    own = GatherOp(rows, weight.variables.get(RANK, np.zeros(1, np.int64)).operand, axis=0)
    weight.shape = (shard,)
    weight.weight = weight.variables.term(SSAValue.get(reshaped(own, weight.shape)))


def sum_of_ranks(term: Term, weight: WeightContext) -> Term:
    """The sum of one scalar over all ranks that have a shard of a weight."""
    row = reshaped(term.operand, (1,))
    total = ExchangeOp(row, weight.last, kind=ALL_REDUCE, size=weight.spec.ranks)
    return weight.variables.term(SSAValue.get(reshaped(total, ())))


def all_gather_weight(weight: WeightContext, shard: Term) -> Term:
    """The weight after the step, all-gathered from the shards that the ranks updated."""
    assert weight.whole is not None, "a rank that updates a shard has the whole weight"
    gathered = ExchangeOp(
        shard.cast(weight.dtype).operand, weight.last, kind=ALL_GATHER, size=weight.spec.ranks
    )
    shape = shape_of(weight.whole.operand)
    row = SliceOp(gathered, starts=[0], sizes=[prod(shape)], steps=[1])
    whole = weight.variables.term(SSAValue.get(reshaped(row, shape)))
    return weight.at_end(whole, weight.whole.cast(weight.dtype))


def shard_variable(op: VariableOp, ranks: int, weights: WeightStore) -> VariableOp:
    """
    A variable with this rank's shard of a weight; the host sets its first value.

    The weight is all-gathered anew before each operation that reads it.
    """
    block, shape, dtype = op.parent, shape_of(op.result), dtype_of(op.result).numpy
    assert block is not None, "a variable is in a graph"
    shard = (-(-prod(shape) // ranks),)
    key = f"share:{dtype_of(op.result).name}:{shard}"
    first = weights.defer(key, shard, dtype, lambda: np.zeros(shard, dtype))
    with ImplicitBuilder(Builder(InsertPoint.before(op))):
        made = VariableOp(op.variable.text, first)
    readers: dict[Operation, list[Use]] = {}
    for use in list(op.result.uses):
        reader = block.find_ancestor_op_in_block(use.operation)
        assert reader is not None, "what a graph has is read in it"
        readers.setdefault(reader, []).append(use)
    for reader, uses in readers.items():
        with ImplicitBuilder(Builder(InsertPoint.before(reader))):
            gathered = ExchangeOp(made.result, kind=ALL_GATHER, size=ranks)
            row = SliceOp(gathered, starts=[0], sizes=[prod(shape)], steps=[1])
            whole = SSAValue.get(reshaped(row, shape))
        for use in uses:
            use.operation.operands[use.index] = whole
    Rewriter.erase_op(op)
    return made


def _padded(value: SSAValue, count: int) -> SSAValue:
    """Flattens a value and pads it with zeros to `count` elements."""
    size = prod(shape_of(value))
    row = SSAValue.get(reshaped(value, (size,)))
    if size == count:
        return row
    return PadOp(row, low=[0], high=[count - size], interior=[0], value=0.0).result
