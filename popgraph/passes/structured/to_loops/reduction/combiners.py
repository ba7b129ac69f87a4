"""A reduce or a contract as one thing: inputs, body, epilogue, and how sums are combined."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    BFloat16Type,
    Float16Type,
    Float32Type,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.scalars import widening
from popgraph.dialects.tile.structured.combiners import Combiner, combiners_of
from popgraph.dialects.tile.structured.contract import part_operations
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.structured.analysis.blocks import zero_of
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class Reduction:
    """A reduce or a contract: `epilogue(fold of body over inputs, ...)`; see `tile.reduce`."""

    inputs: tuple[SSAValue, ...]
    maps: tuple[AffineMap, ...]
    epilogue_inputs: tuple[SSAValue, ...]
    epilogue_maps: tuple[AffineMap, ...]
    sizes: Shape
    parallel: int
    initial: tuple[Attribute, ...]
    body: Block
    epilogue: Block

    @staticmethod
    def of(op: tile.ReduceOp | tile.ContractOp) -> Reduction:
        if isinstance(op, tile.ContractOp):
            return Reduction._of_contract(op)
        return Reduction(
            tuple(op.inputs),
            op.input_maps,
            tuple(op.epilogue_inputs),
            op.epilogue_input_maps,
            op.sizes,
            op.parallel_rank,
            tuple(op.initial),
            op.body.block,
            op.epilogue.block,
        )

    @staticmethod
    def _of_contract(op: tile.ContractOp) -> Reduction:
        kind = op.sum_type
        sum_kind = Float32Type() if isinstance(kind, Float16Type | BFloat16Type) else kind
        return Reduction(
            (op.lhs, op.rhs),
            op.input_maps,
            tuple(op.epilogue_inputs),
            op.epilogue_input_maps,
            op.sizes,
            op.parallel_rank,
            (zero_of(sum_kind),),
            _product_sum(op, sum_kind),
            op.epilogue.block if kind == sum_kind else _narrowed(op.epilogue.block, kind, sum_kind),
        )

    @property
    def combiners(self) -> list[Combiner | None]:
        """For each accumulator how its next value is made of it and something else."""
        return combiners_of(self.body, len(self.inputs))


def _product_sum(op: tile.ContractOp, sum_kind: Attribute) -> Block:
    """The body `sum + lhs * rhs`."""
    block = Block(arg_types=[element(op.lhs), element(op.rhs), sum_kind])
    lhs, rhs, total = (SSAValue.get(argument) for argument in block.args)
    if op.parts is not None:
        found = part_operations(op.parts, rhs, op.numbers)
        block.add_ops(found)
        (rhs,) = found[-1].results
    if op.words is not None:
        dot = tile.DotOp(op.words, lhs, rhs, total)
        block.add_ops([dot, tile.YieldOp(dot)])
        return block
    if isinstance(sum_kind, AnyFloat):
        left, right = (_widened(block, value, sum_kind) for value in (lhs, rhs))
        product: Operation = arith.MulfOp(left, right)
        added: Operation = arith.AddfOp(total, product)
    else:
        product = arith.MuliOp(lhs, rhs)
        added = arith.AddiOp(total, product)
    block.add_ops([product, added, tile.YieldOp(added)])
    return block


def _widened(block: Block, value: SSAValue, kind: Attribute) -> SSAValue:
    if value.type == kind:
        return value
    wide = widening(value, kind)
    block.add_op(wide)
    return SSAValue.get(wide)


def _narrowed(epilogue: Block, kind: Attribute, sum_kind: Attribute) -> Block:
    """The same epilogue for a sum that was kept in a wider type."""
    block = Block(arg_types=[sum_kind, *[argument.type for argument in epilogue.args[1:]]])
    narrow = arith.TruncFOp(block.args[0], kind)
    block.add_op(narrow)
    values = dict(zip(epilogue.args, [narrow.result, *block.args[1:]], strict=True))
    for op in epilogue.ops:
        block.add_op(op.clone(value_mapper=values))
    return block
