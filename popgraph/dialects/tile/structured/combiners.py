"""Combiners of reductions: their identities, and which may be reassociated."""

from __future__ import annotations

from xdsl.dialects import arith
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
"""What may be regrouped: float sums with care, the others freely."""


def combiners_of(body: Block, inputs: int) -> list[Combiner | None]:
    """
    For each accumulator how its next value is made of it and something else.

    The body of a reduction takes so many elements of inputs first, then the accumulators.
    """
    result = body.last_op
    assert result is not None
    return [
        _combiner(accumulator, value)
        for accumulator, value in zip(body.args[inputs:], result.operands, strict=True)
    ]


def _combiner(accumulator: SSAValue, value: SSAValue) -> Combiner | None:
    maker = value.owner
    if (
        isinstance(maker, COMBINERS)
        and accumulator.has_one_use()
        and value.has_one_use()
        and accumulator in maker.operands
    ):
        return type(maker)
    return None


def identity_of(combiner: Combiner, initial: Attribute) -> Attribute:
    """What changes nothing when combined (where twice is as once, the initial value)."""
    if isinstance(initial, FloatAttr):
        neutral: dict[Combiner, float] = {arith.AddfOp: -0.0, arith.MulfOp: 1.0}
        return FloatAttr(neutral.get(combiner, initial.value.data), initial.type)
    assert isinstance(initial, IntegerAttr)
    whole: dict[Combiner, int] = {arith.AddiOp: 0, arith.MuliOp: 1}
    return IntegerAttr(whole.get(combiner, initial.value.data), initial.type)
