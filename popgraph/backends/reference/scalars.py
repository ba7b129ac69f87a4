"""What does each scalar operation do to NumPy values: scalars, vectors and whole arrays alike?"""

from __future__ import annotations

import math as python_math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects import arith, math, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from popgraph.backends.reference.memory import literal_value, numpy_dtype
from popgraph.dialects import element_types, tile
from popgraph.support import dtypes
from popgraph.support.casts import cast

Function: TypeAlias = Callable[..., Any]


def convert(value: Any, dtype: np.dtype[np.generic]) -> Any:
    """`value` in another dtype. Indices may be plain Python numbers."""
    return cast(value, dtype) if hasattr(value, "astype") else dtype.type(value)


_UNSIGNED = {"bool": np.dtype(np.uint8)} | {
    f"i{width}": dtypes.BY_NAME[f"u{width}"].numpy for width in (2, 4, 8, 16, 32, 64)
}


def unsigned(value: Any) -> Any:
    """The same bits, read without a sign."""
    value = value if hasattr(value, "dtype") else np.int64(value)
    dtype = dtypes.from_numpy(value.dtype)
    return value if dtype.name.startswith("u") else value.view(_UNSIGNED[dtype.name])


def divide(lhs: Any, rhs: Any) -> Any:
    """
    Integer division that rounds toward zero.

    By zero it gives zero, and the least number by -1 itself: as in the C that is generated, what
    the model should not have asked never ends the process.
    """
    by_zero = rhs == 0
    divisor = select(by_zero, rhs + 1, rhs)
    quotient = lhs // divisor
    inexact = quotient * divisor != lhs
    rounded = quotient + (inexact & ((lhs < 0) != (divisor < 0)))
    return select(by_zero, rounded - rounded, rounded)


def remainder(lhs: Any, rhs: Any) -> Any:
    """What `divide` leaves; it has the sign of `lhs`, and is zero where it divides by zero."""
    return select(rhs == 0, rhs - rhs, lhs - divide(lhs, rhs) * rhs)


def select(condition: Any, lhs: Any, rhs: Any) -> Any:
    if isinstance(condition, np.ndarray):
        return np.where(condition, lhs, rhs)
    return lhs if condition else rhs


def fused(lhs: Any, rhs: Any, addend: Any) -> Any:
    """
    lhs * rhs + addend, rounded once.

    Products of f32 are exact in f64, so only the last of the two roundings shows (it can err where
    the f64 sum is itself a tie). There is nothing wider for f64: there it is rounded twice.
    """
    if addend.dtype == np.float64:
        return lhs * rhs + addend
    wide = np.float64
    return (lhs.astype(wide) * rhs.astype(wide) + addend.astype(wide)).astype(addend.dtype)


_erf = np.frompyfunc(python_math.erf, 1, 1)


def erf(value: Any) -> Any:
    """NumPy has none; computed in double, then rounded."""
    return convert(np.asarray(_erf(value.astype(np.float64)), np.float64)[()], value.dtype)


def power(base: Any, exponent: Any) -> Any:
    """NumPy takes the square root where one exponent of 1/2 is for all, which has no value here."""
    is_lowest_root = (base == -np.inf) & (exponent == 0.5)
    return select(is_lowest_root, -base, np.power(base, exponent))


def is_ordered(lhs: Any, rhs: Any) -> Any:
    return (lhs == lhs) & (rhs == rhs)


PLAIN: dict[type[Operation], Function] = {
    arith.AddfOp: operator.add,
    arith.SubfOp: operator.sub,
    arith.MulfOp: operator.mul,
    arith.DivfOp: operator.truediv,
    tile.RemainderOp: np.fmod,
    arith.NegfOp: operator.neg,
    arith.MaximumfOp: np.maximum,
    arith.MinimumfOp: np.minimum,
    arith.SelectOp: select,
    tile.SelectOp: select,
    arith.AddiOp: operator.add,
    arith.SubiOp: operator.sub,
    arith.MuliOp: operator.mul,
    arith.DivSIOp: divide,
    arith.RemSIOp: remainder,
    arith.AndIOp: operator.and_,
    arith.OrIOp: operator.or_,
    arith.XOrIOp: operator.xor,
    arith.ShLIOp: operator.lshift,
    arith.ShRSIOp: operator.rshift,
    arith.MaxSIOp: np.maximum,
    arith.MinSIOp: np.minimum,
    math.AbsFOp: np.abs,
    math.AbsIOp: np.abs,
    math.ExpOp: np.exp,
    math.ExpM1Op: np.expm1,
    math.LogOp: np.log,
    math.Log1pOp: np.log1p,
    math.SqrtOp: np.sqrt,
    math.SinOp: np.sin,
    math.CosOp: np.cos,
    math.TanOp: np.tan,
    math.AtanOp: np.arctan,
    math.Atan2Op: np.arctan2,
    math.AsinOp: np.arcsin,
    math.AcosOp: np.arccos,
    math.SinhOp: np.sinh,
    math.CoshOp: np.cosh,
    math.AsinhOp: np.arcsinh,
    math.AcoshOp: np.arccosh,
    math.AtanhOp: np.arctanh,
    math.TanhOp: np.tanh,
    math.ErfOp: erf,
    math.PowFOp: power,
    math.FloorOp: np.floor,
    math.CeilOp: np.ceil,
    math.RoundEvenOp: np.rint,
    math.FmaOp: fused,
    vector.FMAOp: fused,
}
"""Operations whose function is the same whatever their types."""

_SIGNED: tuple[Function, ...] = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip
_FLOAT: tuple[Function, ...] = (
    lambda a, b: (a != a) & False,
    lambda a, b: a == b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: (a < b) | (a > b),
    is_ordered,
    lambda a, b: ~((a < b) | (a > b)),
    lambda a, b: ~(a <= b),
    lambda a, b: ~(a < b),
    lambda a, b: ~(a >= b),
    lambda a, b: ~(a > b),
    lambda a, b: a != b,
    lambda a, b: ~is_ordered(a, b),
    lambda a, b: (a != a) | True,
)
"""By predicate number: false, oeq, ogt, oge, olt, ole, one, ord, ueq, ... une, uno, true."""


def compare_integers(op: arith.CmpiOp | tile.CompareOp) -> Function:
    number = op.predicate.value.data
    if number < len(_SIGNED):
        return _SIGNED[number]
    compare = _SIGNED[number - 4]  # ult follows sge, as slt follows ne
    return lambda lhs, rhs: compare(unsigned(lhs), unsigned(rhs))


def compare_lanes(op: tile.CompareOp) -> Function:
    """As the stock comparison of such elements does."""
    assert isinstance(op.lhs.type, VectorType)
    if element_types.from_ir(op.lhs.type.element_type).is_float:
        return _FLOAT[op.predicate.value.data]
    return compare_integers(op)


def convert_lanes(op: tile.ConvertOp) -> Function:
    """As the stock conversion of that name does."""
    (kind,) = (kind for kind in TYPED if kind.name == op.conversion.data)
    return TYPED[kind](op)


def result_dtype(op: Operation) -> np.dtype[np.generic]:
    return numpy_dtype(op.results[0].type)


def to_result(op: Operation) -> Function:
    """Conversions that NumPy makes as LLVM does."""
    dtype = result_dtype(op)
    return lambda value: convert(value, dtype)


def from_unsigned(op: Operation) -> Function:
    dtype = result_dtype(op)
    return lambda value: convert(unsigned(value), dtype)


def from_signed(op: Operation) -> Function:
    """An `i1` that is true counts as -1."""
    dtype = result_dtype(op)
    if numpy_dtype(op.operands[0].type) == np.bool_:
        return lambda value: convert(-value.astype(np.int8), dtype)
    return lambda value: convert(value, dtype)


def truncate(op: Operation) -> Function:
    dtype = result_dtype(op)
    if dtype == np.bool_:
        return lambda value: (value & 1).astype(np.bool_)
    return lambda value: cast(value, dtype)


def bitcast(op: Operation) -> Function:
    dtype = result_dtype(op)
    return lambda value: value.view(dtype)


def as_unsigned(function: Function) -> Callable[[Operation], Function]:
    """`function` of the same bits, read without a sign."""

    def typed(op: Operation) -> Function:
        dtype = result_dtype(op)
        return lambda lhs, rhs: function(unsigned(lhs), unsigned(rhs)).view(dtype)

    return typed


def constant(op: arith.ConstantOp) -> Function:
    value = literal_value(op.value, op.result.type)
    return lambda: value


TYPED: dict[type[Operation], Callable[[Any], Function]] = {
    arith.ConstantOp: constant,
    arith.CmpiOp: compare_integers,
    arith.CmpfOp: lambda op: _FLOAT[op.predicate.value.data],
    tile.CompareOp: compare_lanes,
    tile.ConvertOp: convert_lanes,
    arith.IndexCastOp: to_result,
    arith.SIToFPOp: from_signed,
    arith.UIToFPOp: from_unsigned,
    arith.FPToSIOp: to_result,
    arith.FPToUIOp: to_result,
    arith.ExtFOp: to_result,
    arith.TruncFOp: to_result,
    arith.ExtSIOp: from_signed,
    arith.ExtUIOp: from_unsigned,
    arith.TruncIOp: truncate,
    arith.BitcastOp: bitcast,
    arith.ShRUIOp: as_unsigned(operator.rshift),
    arith.DivUIOp: as_unsigned(divide),
    arith.RemUIOp: as_unsigned(remainder),
    arith.MaxUIOp: as_unsigned(np.maximum),
    arith.MinUIOp: as_unsigned(np.minimum),
}
"""Operations whose function depends on their attributes or types."""


def function_of(op: Operation) -> Function:
    """The function from operand values to the result's value."""
    kind = type(op)
    if kind in PLAIN:
        return PLAIN[kind]
    assert kind in TYPED, f"{op.name} is not in the scalar vocabulary"
    return TYPED[kind](op)
