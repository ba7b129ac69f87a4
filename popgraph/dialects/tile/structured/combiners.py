"""Combiners of reductions: their identities, and reassociation."""

from __future__ import annotations

from xdsl.dialects import arith, math
from xdsl.dialects.arith import (
    FloatingPointLikeBinaryOperation,
    SignlessIntegerBinaryOperation,
)
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, Block, SSAValue

Combiner = type[FloatingPointLikeBinaryOperation | SignlessIntegerBinaryOperation]

COMBINERS: tuple[Combiner, ...] = (
    *(arith.AddfOp, arith.MulfOp, arith.MaximumfOp, arith.MinimumfOp),
    *(arith.AddiOp, arith.MuliOp, arith.MaxSIOp, arith.MinSIOp, arith.MaxUIOp, arith.MinUIOp),
    *(arith.AndIOp, arith.OrIOp),
)
"""Combiners that may be regrouped: float sums with care for accuracy, the others freely."""


def combiners_of(body: Block, inputs: int) -> list[Combiner | None]:
    """
    For each accumulator, the operation that combines it with a new value; None if it is another.

    The body of a reduction takes the elements of `inputs` inputs, then the accumulators.
    """
    result = body.last_op
    assert result is not None
    return [
        _combiner(accumulator, value)
        for accumulator, value in zip(body.args[inputs:], result.operands, strict=True)
    ]


def _combiner(accumulator: SSAValue, value: SSAValue) -> Combiner | None:
    maker = value.owner
    if isinstance(maker, math.FmaOp) and accumulator is maker.c:
        return arith.AddfOp if accumulator.has_one_use() and value.has_one_use() else None
    if (
        isinstance(maker, COMBINERS)
        and accumulator.has_one_use()
        and value.has_one_use()
        and accumulator in maker.operands
    ):
        return type(maker)
    return None


def identity_of(combiner: Combiner, initial: Attribute) -> Attribute:
    """The neutral element: x op e = x. For idempotent combiners, the initial value itself."""
    if isinstance(initial, FloatAttr):
        # -0.0 + x is x for every x; 0.0 + -0.0 would be 0.0.
        neutral: dict[Combiner, float] = {arith.AddfOp: -0.0, arith.MulfOp: 1.0}
        return FloatAttr(neutral.get(combiner, initial.value.data), initial.type)
    assert isinstance(initial, IntegerAttr)
    whole: dict[Combiner, int] = {arith.AddiOp: 0, arith.MuliOp: 1}
    return IntegerAttr(whole.get(combiner, initial.value.data), initial.type)
