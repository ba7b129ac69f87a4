"""Canonicalization of scaled operands: a scale moves to the smallest tensor of a matmul."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import bf16, f32, f64
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import BroadcastOp, MatMulOp, MulOp, ReshapeOp, TransposeOp
from popgraph.dialects.graphcore.base import Movement, Operand, dtype_of, shape_of, tensor_of
from popgraph.dialects.program import ConstantOp
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, moved, with_operands
from popgraph.support.shapes import prod

MOVEMENTS = (TransposeOp, ReshapeOp, BroadcastOp)
"""Operations that commute with a scale."""
WIDE = (f32, f64, bf16)
"""Element types in which a moderate scale cannot overflow on its own; the largest f16 is 65504."""
MODERATE = 2.0**16
"""Scales from 1 / MODERATE to MODERATE move: within them f32 has ample exponents left."""


@dataclass(frozen=True)
class Scaled:
    """movements(plain * scale), where scale is one number."""

    product: MulOp
    plain: SSAValue
    scale: float
    movements: Sequence[Movement]

    @property
    def elements(self) -> int:
        return prod(shape_of(self.product.result))

    def without_scale(self) -> SSAValue:
        return moved(self.plain, self.movements)


class ScaleFewest(Rule[MatMulOp]):
    """
    q @ (k * c)  ->  (q * c) @ k or (q @ k) * c; (q * b) @ (k * c)  ->  (q * (b * c)) @ k.

    Only when c is one number of moderate size, k * c has no other use, and the other factor or the
    product has fewer elements. A decoder then scales one query instead of all keys. Scaling a
    literal without other uses is free: constant folding does it.
    """

    ROOTS = (MatMulOp,)

    def rewrite(self, op: MatMulOp) -> Operand | None:
        for number in (0, 1):
            found = self._scaled(op.operands[number])
            made = None if found is None else self._rewritten(op, number, found)
            if made is not None:
                return made
        return None

    def _scaled(self, value: SSAValue) -> Scaled | None:
        """The value as a movable product with one number, or None."""
        movements = list[Movement]()
        while isinstance(value.owner, MOVEMENTS) and value.has_one_use():
            movements.insert(0, value.owner)
            value = value.owner.x
        op = value.owner
        if not isinstance(op, MulOp) or not value.has_one_use():
            return None
        if tensor_of(value).element_type not in WIDE:
            return None
        for plain, factor in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            array = self.array(factor)
            if array is None or array.size != 1 or shape_of(plain) != shape_of(value):
                continue
            if _is_scaled_when_folded(plain):
                continue
            scale = float(array.reshape(()))
            if 1 / MODERATE <= abs(scale) <= MODERATE:
                return Scaled(op, plain, scale, movements)
        return None

    def _rewritten(self, op: MatMulOp, number: int, found: Scaled) -> Operand | None:
        other = op.operands[1 - number]
        partner = self._scaled(other)
        results = prod(shape_of(op.result))
        if partner is not None and partner.elements <= found.elements:
            scale = self._number(partner.scale * found.scale, other)
            both = moved(MulOp(partner.plain, scale), partner.movements)
            return self._product(op, number, found, both)
        if self._elements(other) < min(found.elements, results + 1):
            factor = MulOp(other, self._number(found.scale, other))
            return self._product(op, number, found, factor.result)
        if results < found.elements:
            product = self._product(op, number, found, other)
            return MulOp(product, self._number(found.scale, other))
        return None

    def _product(self, op: MatMulOp, number: int, found: Scaled, other: SSAValue) -> Operand:
        factors = [other, other]
        factors[number] = found.without_scale()
        return with_operands(op, factors)

    def _elements(self, value: SSAValue) -> int:
        """The number of multiplications that scaling a value costs at run time."""
        return 0 if _is_scaled_when_folded(value) else prod(shape_of(value))

    def _number(self, scale: float, like: SSAValue) -> Operand:
        return self.literal(np.array(scale, dtype_of(like).numpy))


# Such a literal absorbs its scale in fold-constants. Without this exception in `_scaled`, the scale
# of a literal in T5 moved to and fro without end.
def _is_scaled_when_folded(value: SSAValue) -> bool:
    return isinstance(value.owner, ConstantOp) and value.has_one_use()


RULES = (ScaleFewest,)
