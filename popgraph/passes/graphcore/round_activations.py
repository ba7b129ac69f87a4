"""Rounds activations to int8 where weights are small integers with scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import ModuleOp, f32, i8, i32
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import (
    AbsOp,
    CastOp,
    CompareOp,
    DequantizeOp,
    DivOp,
    MatMulOp,
    MulOp,
    ReduceMaxOp,
    ReduceSumOp,
    ReshapeOp,
    RoundOp,
    SubOp,
    TransposeOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of, tensor_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.quantization import in_type
from popgraph.dialects.program import WeightStore
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, apply_rules, moved
from popgraph.passes.graphcore.scaled_weights import (
    Scaled,
    ScaledFinder,
    block_of,
    source_of,
)
from popgraph.passes.options import INT8, Options
from popgraph.support.arrays import Array
from popgraph.support.laws import Proof
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning
from popgraph.support.warnings import PopgraphWarning
from popgraph.support.words import WORD

BYTE = np.iinfo(np.uint8).max
"""The largest difference of two weights that are multiplied as bytes."""
MOST = np.iinfo(np.int8).max
"""The largest rounded activation."""
NOTHING = "no activation is rounded to int8"
HINT = (
    "activations='float': only matmuls with constant weights of at most 8 bits, and a scale for "
    "each column or block, round their activations"
)


def rounded(x: Operand) -> tuple[Operand, Operand]:
    """
    Rounds activations [blocks, rows, terms] to integers, times scales [blocks, rows, 1].

    The largest one of each block becomes 127 or -127.
    """
    largest = ReduceMaxOp(AbsOp(x), axes=[2], keepdims=True)
    scale = DivOp(largest, scalar(MOST, largest.result))
    is_zero = CompareOp(scale, scalar(0, scale.result), predicate="eq")
    divisor = WhereOp(is_zero, scalar(1, scale.result), scale)
    return CastOp(CastOp(RoundOp(DivOp(x, divisor)), to=i8), to=i32), scale


class RoundByBlocks(Rule[MatMulOp]):
    """
    y = mat_mul x, (w * s - m)  ->  y = reduce_sum (((mat_mul q, w) * s - (sums of q) * m) * t).

    q = round(x / t) are bytes, and t is the largest |x| of a block of a row, divided by 127. Only
    when w is a literal of at most 8 bits; s and m are literals that are equal in a block of rows.
    """

    ROOTS = (MatMulOp,)
    PROOF = Proof(unproven="x is rounded because the options ask for it; tests bound the error")

    def __init__(self, weights: WeightStore, tuning: Tuning) -> None:
        super().__init__(weights)
        self._finder, self._tuning = ScaledFinder(weights), tuning

    def rewrite(self, op: MatMulOp) -> Operand | None:
        if len(shape_of(op.rhs)) != 2 or 0 in (*shape_of(op.lhs), *shape_of(op.rhs)):
            return None
        # Dequantized activations are bytes already.
        if dtype_of(op.result).name not in ("f32", "f16", "bf16") or isinstance(
            source_of(op.lhs)[0].owner, DequantizeOp
        ):
            return None
        found = self._finder.of(op.rhs)
        before = None if found is None else self._finder.intervals.of(found.numbers)
        if found is None or before is None or before.high - before.low > BYTE:
            return None
        return self._rewritten(op, found, before.low, before.high - before.low)

    def _rewritten(self, op: MatMulOp, found: Scaled, low: int, span: int) -> Operand | None:
        """The scaled sums over blocks; None if blocks are too small, or sums exceed 32 bits."""
        scale, zero, minimum = self._tables(found)
        terms, columns = scale.shape
        block = block_of((scale, zero) if minimum is None else (scale, zero, minimum))
        if block < self._tuning.least_block_terms or block * MOST * span > np.iinfo(WORD).max:
            return None
        count, rows = terms // block, prod(shape_of(op.lhs)[:-1])

        def by_block(table: Array) -> SSAValue:
            held = table[::block].reshape(count, 1, columns).astype(np.float32)
            return SSAValue.get(self.literal(held[0, 0, 0] if np.ptp(held) == 0 else held))

        wide = ReshapeOp(in_type(op.lhs, f32), shape=(rows, count, block))
        whole, by_row = rounded(TransposeOp(wide, perm=(1, 0, 2)))
        numbers = ReshapeOp(
            moved(in_type(found.numbers, i32), found.movements), shape=(count, block, columns)
        )
        codes = SubOp(numbers, scalar(low, numbers.result)) if low else numbers
        sums: Operand = CastOp(MatMulOp(whole, codes), to=f32)
        added = CastOp(ReduceSumOp(whole, axes=[2], keepdims=True), to=f32)
        if np.any(zero != low):
            sums = SubOp(sums, MulOp(added, by_block(zero - low)))
        if minimum is None:
            scaled: Operand = MulOp(MulOp(sums, by_row), by_block(scale))
        else:
            sums = SubOp(MulOp(sums, by_block(scale)), MulOp(added, by_block(minimum)))
            scaled = MulOp(sums, by_row)
        total = ReshapeOp(ReduceSumOp(scaled, axes=[0], keepdims=False), shape=shape_of(op.result))
        return in_type(total, tensor_of(op.result).element_type)

    def _tables(self, found: Scaled) -> tuple[Array, Array, Array | None]:
        """The scale, zero and minimum of every weight."""
        scale = found.table(found.scale, self.weights)
        zero = np.zeros(scale.shape, np.float32)
        if found.zero is not None:
            zero = found.table(found.zero, self.weights).astype(np.float32)
        return scale, zero, None if found.minimum is None else found.minimum.table(self.weights)


@dataclass(frozen=True)
class RoundActivations(Pass):
    """
    y = mat_mul x, (w * s)  ->  y = reduce_sum ((mat_mul q, w) * t * s), of bytes q = round(x / t).

    Only if the options ask for it, and w are constant weights of at most 8 bits. Each block of a
    row whose weights share a scale s has a scale t of its own.
    """

    name = "round-activations"
    KEEPS_MEANING: ClassVar[bool] = False
    AFTER = ("contract-quantized",)
    BEFORE = ("scale-sums", "fold-constants")
    tuning: Tuning = Tuning()

    @classmethod
    def of(cls, options: Options) -> RoundActivations | None:
        return cls(options.tuning) if options.activations == INT8 else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        apply_rules(module, [RoundByBlocks(compilation.weights, self.tuning)])
        products = [op for op in module.walk() if isinstance(op, MatMulOp)]
        if products and all(dtype_of(op.result).is_float for op in products):
            compilation.warn(NOTHING, HINT, PopgraphWarning)
