"""Turns sums of scaled products into contractions that scale the sum of each block of terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import composed
from popgraph.dialects.tile.structured.ops import element, indexed_dims, yielded
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import UNCUT
from popgraph.passes.structured.analysis.axis_orders import AxisOrder
from popgraph.passes.structured.analysis.loops import (
    has_identity_epilogue,
    sum_type,
    tensor,
)
from popgraph.passes.structured.analysis.operand_maps import (
    MappedOperands,
    erase_unused,
    inline_producer,
    mapped_inputs,
    moved,
)
from popgraph.passes.structured.analysis.permute_results import (
    read_in_order,
    with_permuted_results,
)
from popgraph.passes.structured.analysis.split_epilogue import split_epilogue
from popgraph.support.laws import Proof, Rewrite, real_law, variable
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target
from popgraph.support.words import WORDS

X, W, C, Q = map(variable, ("x", "w", "c", "q"))
SUM_BLOCKS = Rewrite(
    "sum in blocks",
    "reduce sum over b: f(contract over k, s)  ->  contract over b, k, f(., s) of each block",
    Proof(
        (real_law(Q * C + X * (W * C), (Q + X * W) * C),),
        approximate="each block is scaled after its sum",
    ),
)


@dataclass(frozen=True)
class SumInBlocks(Pass):
    """
    Scales sums block by block in registers, for block-quantized weights.

    y = reduce sum over b: f(contract over k, s)  ->  y = contract over b, k, f(., s) of each block

    Only when both factors differ between blocks and blocks have enough terms. One row of bytes with
    a 4096 x 4096 matrix of 4-bit weights (blocks of 32, VNNI) is 4.6x as fast as in floats.
    """

    name = "sum-in-blocks"
    TOLERANCE = 1e-5
    NEEDS = (UNCUT,)
    BEFORE = ("fuse-rows", "schedule-contractions")
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, tile.ReduceOp) and op.parent is not None and _is_sum(op):
                found = next((one for one in _partial_sums(op) if self._pays(op, one)), None)
                if found is not None:
                    found.join(op)

    def _pays(self, op: tile.ReduceOp, found: PartialSums) -> bool:
        """Whether blocks are long enough to pay, and short enough for accurate floats."""
        sums, tuning = found.sums, self.target.tuning
        blocks = [found.order[dim] for dim in range(op.parallel_rank, len(op.sizes))]
        # In a sum over columns of one factor, the other factor is the same: no blocks of terms.
        own = all(set(blocks) <= map_.used_dims() for map_ in sums.input_maps)
        terms = prod(sums.sizes[sums.parallel_rank :])
        # Integer sums are exact; a chain of floats is bounded as in any contraction.
        if (words := sums.words) is not None:
            terms *= WORDS[words.data].count
        elif terms > tuning.chain_terms:
            return False
        return own and terms >= tuning.least_block_terms


@dataclass(frozen=True)
class PartialSums:
    """
    The sums of a contraction that a reduction scales and adds, perhaps through a map or epilogue.

    They are input `number` of the reduction; its loop `i` is loop `order[i]` of `sums`.
    """

    number: int
    sums: tile.ReduceOp
    order: AxisOrder

    def join(self, op: tile.ReduceOp) -> None:
        """Replaces the reduction and the contraction by one contraction in blocks."""
        SUM_BLOCKS.fires()
        sums = split_epilogue(self.sums)  # An epilogue becomes a map, the case below.
        between = op.inputs[self.number].owner
        total, addend = _total_and_addend(op)
        assert isinstance(total.owner, Operation) and op.body.block.last_op is not None
        op.body.block.last_op.operands = [addend]
        Rewriter.erase_op(total.owner)
        reading = mapped_inputs(op)
        if isinstance(between, tile.MapOp):
            reading = inline_producer(reading, self.number, between)
        plain = with_permuted_results(sums, self.order)
        new = tile.ReduceOp(
            plain.inputs,
            plain.input_maps,
            plain.sizes,
            op.parallel_rank,
            list(plain.initial),
            plain.detach_region(plain.body),
            op.epilogue.clone(),
            [element(value) for value in op.outputs],
            op.epilogue_inputs,
            op.epilogue_input_maps,
            contracts=True,
            blocks=_blocks(reading, sums, len(op.sizes) - op.parallel_rank),
        )
        plain.erase()
        for old, result in zip(op.outputs, new.outputs, strict=True):
            set_type(result, tensor(old))
        replace_op(op, new)
        for unread in (between, sums):
            if isinstance(unread, Operation):
                erase_unused(unread)


def _blocks(reading: MappedOperands, sums: tile.ReduceOp, loops: int) -> tile.Blocks:
    """The body that scales the sum of a block, with its other operands."""
    at = reading.values.index(sums.outputs[0])
    others = [number for number in range(len(reading.values)) if number != at]
    values = [reading.values[number] for number in others]
    body = Block(arg_types=[element(sums.outputs[0]), *map(element, values)])
    first, *rest = body.args
    arguments: list[SSAValue] = list(rest)
    arguments.insert(at, first)
    assert reading.body is not None
    unused = len(reading.body.args) - len(arguments)  # The total before.
    results = moved(body, reading.body, [*arguments, *[first] * unused])
    body.add_op(tile.YieldOp(*results))
    return tile.Blocks(loops, Region(body), values, [reading.maps[number] for number in others])


def _total_and_addend(op: tile.ReduceOp) -> tuple[SSAValue, SSAValue]:
    """The next total of a sum and its addend."""
    (total,) = yielded(op.body.block)
    assert isinstance(total.owner, arith.AddfOp | arith.AddiOp)
    before = op.body.block.args[-1]
    lhs, rhs = total.owner.operands
    return total, rhs if lhs is before else lhs


def _is_sum(op: tile.ReduceOp) -> bool:
    """Whether a reduction is a sum from zero of an expression of its inputs."""
    body = op.body.block
    if tile.is_contraction(op) or len(op.outputs) != 1:
        return False
    if indexed_dims(body) or indexed_dims(op.epilogue.block):
        return False
    (initial,), (total,) = op.initial, yielded(body)
    if not isinstance(initial, FloatAttr | IntegerAttr) or initial.value.data != 0:
        return False
    if not isinstance(total.owner, arith.AddfOp | arith.AddiOp):
        return False
    before = body.args[-1]
    return total.has_one_use() and before.has_one_use() and before in total.owner.operands


def _partial_sums(op: tile.ReduceOp) -> Iterator[PartialSums]:
    """The contractions that a sum reads and scales, directly or through a map."""
    addend = _total_and_addend(op)[1]
    for number, (value, map_) in enumerate(zip(op.inputs, op.input_maps, strict=True)):
        owner = value.owner
        if tile.is_contraction(owner):
            # Sums of sums without a scale need no blocks.
            plain = addend is op.body.block.args[number] and has_identity_epilogue(owner)
            if not plain and _is_partial(owner):
                yield from _in_order(op, number, owner, map_)
        elif isinstance(owner, tile.MapOp) and value.has_one_use() and _is_inlined(owner):
            for inner, inner_map in zip(owner.inputs, owner.input_maps, strict=True):
                sums = inner.owner
                if not tile.is_contraction(sums) or not has_identity_epilogue(sums):
                    continue
                if _is_partial(sums):
                    found = composed(inner_map, map_, op.sizes)
                    yield from _in_order(op, number, sums, found)


def _is_inlined(op: tile.MapOp) -> bool:
    """Whether a map can be inlined into its reader."""
    return len(op.outputs) == 1 and not op.tables and not indexed_dims(op.body.block)


def _is_partial(sums: tile.ReduceOp) -> bool:
    """Whether a contraction has no schedule or blocks yet, and a single reader."""
    free = sums.schedule is None and sums.block is None and sum_type(sums) is not None
    alone = len(sums.outputs) == 1 and sums.outputs[0].has_one_use()
    return free and alone and not indexed_dims(sums.epilogue.block)


def _in_order(
    op: tile.ReduceOp, number: int, sums: tile.ReduceOp, map_: AffineMap
) -> Iterator[PartialSums]:
    """The sums, if each of their parallel loops is a loop of the reduction."""
    order = read_in_order(map_, op.sizes)
    if order is None or len(order) != sums.parallel_rank:
        return
    if tuple(sums.sizes[dim] for dim in order) == op.sizes:
        yield PartialSums(number, sums, order)
