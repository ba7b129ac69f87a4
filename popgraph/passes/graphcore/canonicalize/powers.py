"""Strength reduction of powers with constant exponents, which made LRN six times as fast."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.graphcore import (
    AbsOp,
    AddOp,
    AveragePoolOp,
    BroadcastOp,
    ConcatOp,
    DivOp,
    ExpNonpositiveOp,
    ExpOp,
    MaxOp,
    MulOp,
    PadOp,
    ReduceMeanOp,
    ReduceSumOp,
    ReshapeOp,
    SigmoidOp,
    SliceOp,
    SqrtOp,
    TransposeOp,
)
from popgraph.passes.graphcore.canonicalize.arithmetic import INTEGERS
from popgraph.passes.graphcore.canonicalize.by_law import ByLaw, Match, roots
from popgraph.support.laws import Law, Over, Proof, Term, function, real_law, variable

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

X = variable("x")
ROOT = function("sqrt", X)
FOURTH = function("sqrt", ROOT)
SINGLE = frozenset({"f32", "f64"})
UPWARD: Mapping[float, Term] = {
    0.25: FOURTH,
    0.5: ROOT,
    # sqrt(x * sqrt(x)) would overflow where the power does not.
    0.75: ROOT * FOURTH,
    1.5: ROOT * X,
}
"""Exponents whose chain equals the power for x >= +0; for -0 and -inf the power has no sign."""


EVERYWHERE: Mapping[float, Term] = {
    -1.0: function("reciprocal", X),
    2.0: X * X,
    3.0: (X * X) * X,
}
"""Exponents whose chain equals the power for every x, within 1.3 ulp."""
FROM_ZERO: Mapping[float, Term] = {
    **UPWARD,
    **{-exponent: function("reciprocal", UPWARD[exponent]) for exponent in (0.25, 0.5, 0.75)},
}
"""Within 2.4 ulp, reciprocals within 3.8. x^-1.5 is missing: x^1.5 would overflow."""


class MultiplyPower(ByLaw):
    """
    x ^ 2  ->  x * x;  x ^ 0.5  ->  sqrt x;  x ^ -0.75  ->  1 / (sqrt x * sqrt sqrt x); ...

    Only when the result is equal for all values that x can have; other than x ^ 2, only in f32 and
    f64.
    """

    LAWS = (
        Law(X**2.0, X * X, types=INTEGERS),
        real_law(X**2.0, X * X),
        *(
            Law(X**at, chain, None, Over.REALS, SINGLE)
            for at, chain in EVERYWHERE.items()
            if at != 2
        ),
        *(
            Law(X**at, chain, function("unsigned", X), Over.REALS, SINGLE)
            for at, chain in FROM_ZERO.items()
        ),
    )
    ROOTS = roots(LAWS)
    PROOF = Proof(LAWS, approximate="a chain rounds after each operation, a power once")

    def holds(self, given: Term, match: Match, like: SSAValue) -> bool:
        assert given.head == "unsigned"
        return self._is_never_negative(match.values[X])

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
            case AbsOp() | ExpOp() | ExpNonpositiveOp() | SigmoidOp():
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
