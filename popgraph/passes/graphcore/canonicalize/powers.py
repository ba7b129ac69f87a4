"""Strength reduction of powers with constant exponents, which made LRN six times as fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from xdsl.dialects.builtin import Float32Type, Float64Type, FloatAttr
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.graphcore import (
    AbsOp,
    AddOp,
    AveragePoolOp,
    BroadcastOp,
    ConcatOp,
    DivOp,
    ExpOp,
    MaxOp,
    MulOp,
    PadOp,
    PowOp,
    ReciprocalOp,
    ReduceMeanOp,
    ReduceSumOp,
    ReshapeOp,
    SigmoidOp,
    SliceOp,
    SqrtOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Operand, shape_of, tensor_of
from popgraph.passes.graphcore.canonicalize.rewriting import Rule

MOST_SEEN = 64
"""Maximum number of operations visited to prove that a value is not negative."""

KEEPING = (
    AddOp,
    AveragePoolOp,
    BroadcastOp,
    ConcatOp,
    DivOp,
    MulOp,
    ReduceMeanOp,
    ReduceSumOp,
    ReshapeOp,
    SliceOp,
    SqrtOp,
    TransposeOp,
)
"""Operations whose results have no sign bit if no operand has one."""

Chain = Callable[[SSAValue], Operand]


def cube(x: SSAValue) -> Operand:
    return MulOp(MulOp(x, x), x)


EVERYWHERE: Mapping[float, Chain] = {
    -1.0: ReciprocalOp,
    2.0: lambda x: MulOp(x, x),
    3.0: cube,
}
"""Exponents whose chain equals the power for every x, within 1.3 ulp."""


def fourth_root(x: SSAValue) -> Operand:
    return SqrtOp(SqrtOp(x))


def three_quarters(x: SSAValue) -> Operand:
    """sqrt(x) * sqrt(sqrt(x)); sqrt(x * sqrt(x)) would overflow where the power does not."""
    root = SqrtOp(x)
    return MulOp(root, SqrtOp(root))


def inverse(chain: Chain, x: SSAValue) -> Operand:
    return ReciprocalOp(chain(x))


UPWARD: Mapping[float, Chain] = {
    0.25: fourth_root,
    0.5: SqrtOp,
    0.75: three_quarters,
    1.5: lambda x: MulOp(SqrtOp(x), x),
}
"""Exponents whose chain equals the power for x >= +0; for -0 and -inf the power has no sign."""

FROM_ZERO: Mapping[float, Chain] = {
    **UPWARD,
    **{-exponent: partial(inverse, UPWARD[exponent]) for exponent in (0.25, 0.5, 0.75)},
}
"""Within 2.4 ulp, reciprocals within 3.8. x^-1.5 is missing: x^1.5 would overflow."""


class MultiplyPower(Rule[PowOp]):
    """
    x ^ 2  ->  x * x;  x ^ 0.5  ->  sqrt x;  x ^ -0.75  ->  1 / (sqrt x * sqrt sqrt x); ...

    Only when the result is equal for all values that x can have; other than x ^ 2, only in f32 and
    f64.
    """

    ROOTS = (PowOp,)

    def rewrite(self, op: PowOp) -> Operand | None:
        if shape_of(op.lhs) != shape_of(op.result):
            return None
        exponent = self._exponent(op.rhs)
        if exponent is None:
            return None
        if exponent == 2.0:
            return MulOp(op.lhs, op.lhs)
        if not isinstance(tensor_of(op.lhs).element_type, Float32Type | Float64Type):
            return None
        if exponent in EVERYWHERE:
            return EVERYWHERE[exponent](op.lhs)
        if exponent in FROM_ZERO and self._is_never_negative(op.lhs):
            return FROM_ZERO[exponent](op.lhs)
        return None

    def _exponent(self, value: SSAValue) -> float | None:
        """The number that all elements of a literal have."""
        array = self.array(value)
        if array is None or array.size == 0 or not self.is_all(value, float(array.flat[0])):
            return None
        return float(array.flat[0])

    def _is_never_negative(self, value: SSAValue) -> bool:
        """Whether a value is >= +0 or NaN for all inputs; visits at most `MOST_SEEN` operations."""
        seen: dict[SSAValue, None] = {value: None}
        for number in range(MOST_SEEN):
            if number == len(seen):
                return True
            parts = self._parts(list(seen)[number])
            if parts is None:
                return False
            seen |= dict.fromkeys(parts)
        return False

    def _parts(self, value: SSAValue) -> list[SSAValue] | None:
        """Values whose non-negativity implies that of this one; None if nothing implies it."""
        maker = value.owner
        array = self.array(value)
        if array is not None:
            return [] if not np.any(np.signbit(array)) else None
        match maker:
            case MulOp() if maker.lhs is maker.rhs:
                return []
            case AbsOp() | ExpOp() | SigmoidOp():
                return []
            case MaxOp() if any(map(self._is_positive, maker.operands)):
                return []
            case PadOp(value=FloatAttr() as fill) if not np.signbit(fill.value.data):
                return [maker.x]
            case Operation() if isinstance(maker, KEEPING):
                return list(maker.operands)
        return None

    def _is_positive(self, value: SSAValue) -> bool:
        array = self.array(value)
        return array is not None and bool(np.all(np.greater(array, 0)))


RULES = (MultiplyPower,)
