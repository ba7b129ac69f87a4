"""Canonicalization of quantize and dequantize: movement, round trips, integers kept as floats."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import DequantizeOp, QuantizeOp, ReshapeOp, TransposeOp
from popgraph.dialects.graphcore.base import Movement, Operand, dtype_of, is_float, shape_of
from popgraph.dialects.graphcore.broadcasting import reshaped
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, moved
from popgraph.passes.graphcore.fold_constants import computed_array
from popgraph.support.casts import cast
from popgraph.support.index_laws import index_law
from popgraph.support.laws import TRUE, Proof, Term, function, real_law, variable
from popgraph.support.shapes import prod

D, E, F, R, Z, Y, LOW, HIGH = map(variable, ("d", "e", "f", "r", "z", "y", "low", "high"))


def _clamped(x: Term, low: Term, high: Term) -> Term:
    return function("max", function("min", x, high), low)


def _is_near_zero(x: Term, limit: float) -> Term:
    return function("le", -limit, x) & (x <= limit)


CLAMPED = (index_law(_clamped(R + Z, LOW, HIGH) - Y, _clamped(R + (Z - Y), LOW - Y, HIGH - Y)),)
"""A rounded value r with its zero point moved by y, which the bounds follow."""
_ERRORS = _is_near_zero(E, 2.0**-24) & _is_near_zero(F, 2.0**-24)
ROUNDED_TWICE = tuple(
    real_law(near, TRUE, given=_is_near_zero(D, 2.0**17) & _ERRORS)
    for found in [D * (1 + E) * (1 + F)]
    for near in (found > D - 0.5, found < D + 0.5)
)
"""(d * s) / s of an integer d = x - z, with a relative error of at most 2^-24 in each step."""


class DequantizeLast(Rule[Movement]):
    """
    transpose (dequantize x, s, z)  ->  dequantize (transpose x), (transpose s), (transpose z)

    The same for reshape, but only when s and z have one number each, or one for each element.
    """

    ROOTS = (TransposeOp, ReshapeOp)
    PROOF = Proof(construction="scales and zero points move with their elements")

    def rewrite(self, op: Movement) -> Operand | None:
        inner = op.operands[0].owner
        if not isinstance(inner, DequantizeOp):
            return None
        parameters = (inner.scale, inner.zero)
        if isinstance(op, ReshapeOp):
            whole = (1, prod(shape_of(inner.x)))
            if any(prod(shape_of(one)) not in whole for one in parameters):
                return None
        scale, zero = (_moved_with(op, one) for one in parameters)
        return DequantizeOp(moved(inner.x, [op]), scale, zero, to=inner.to)


def _moved_with(op: Movement, value: Operand) -> Operand:
    """A scale or zero point, moved so that it broadcasts to the moved integers."""
    shape = shape_of(value)
    if prod(shape) == 1:
        return reshaped(value, ())
    if isinstance(op, TransposeOp):
        rank = len(op.perm)
        return TransposeOp(reshaped(value, (1,) * (rank - len(shape)) + shape), perm=op.perm.data)
    return reshaped(value, shape_of(op.results[0]))


class KeepAsFloats(Rule[DequantizeOp]):
    """
    dequantize (quantize x, s, z), t, y  ->  dequantize (quantize x, s, z - y {to = f32}), t, 0

    Only when all readers of the integers dequantize them. Otherwise integers are stored, since
    they take fewer bytes. Zero points that are not literals are not merged.
    """

    ROOTS = (DequantizeOp,)
    PROOF = Proof(CLAMPED)

    def rewrite(self, op: DequantizeOp) -> Operand | None:
        inner = op.x.owner
        if not isinstance(inner, QuantizeOp) or not inner.target.is_integer:
            return None
        if not all(isinstance(use.operation, DequantizeOp) for use in op.x.uses):
            return None
        added, taken, bounds = self.array(inner.zero), self.array(op.zero), inner.bounds
        assert bounds is not None, "they are integers"
        options = inner.options | {"to": f32}
        if added is None or taken is None or taken.size != 1 or is_float(op.zero):
            floats = QuantizeOp(*inner.operands, **options)
            return DequantizeOp(floats, op.scale, op.zero, to=op.to)
        less = int(taken.item())
        options |= {"low": bounds[0] - less, "high": bounds[1] - less}
        zero = self.literal(cast(added, SINGLE) - np.float32(less))
        floats = QuantizeOp(inner.x, inner.scale, zero, **options)
        return DequantizeOp(floats, op.scale, self.literal(np.zeros((), SINGLE)), to=op.to)


SINGLE = np.dtype(np.float32)
SMALLEST, GREATEST = 2.0**-100, 2.0**100
"""With scales in this range, (x - z) * s is a normal f32 for all 16-bit integers."""


class DropDequantized(Rule[QuantizeOp]):
    """
    quantize (dequantize x, s, z), s, z  ->  x

    Only for integers of at most 16 bits: two roundings in f32 err by less than half a step.
    """

    ROOTS = (QuantizeOp,)
    PROOF = Proof(ROUNDED_TWICE)

    def rewrite(self, op: QuantizeOp) -> Operand | None:
        inner, row = op.x.owner, op.target
        if not isinstance(inner, DequantizeOp) or inner.to != f32 or dtype_of(inner.x) != row:
            return None
        ends = tuple(QuantizeOp.bounds_of(row).values())
        if not row.is_integer or row.bits > 16 or op.bounds != ends or dtype_of(op.zero) != row:
            return None
        scale = computed_array(op.scale, self.weights)
        if scale is None or not np.all((scale > SMALLEST) & (scale < GREATEST)):
            return None
        parameters = zip(op.operands[1:], inner.operands[1:], strict=True)
        return inner.x if all(self._is_same(*pair) for pair in parameters) else None

    def _is_same(self, one: SSAValue, other: SSAValue) -> bool:
        """Whether two operands are the same value or equal constants."""
        if one is other:
            return True
        first, second = (computed_array(each, self.weights) for each in (one, other))
        return first is not None and second is not None and np.array_equal(first, second)


RULES = (DequantizeLast, DropDequantized, KeepAsFloats)
