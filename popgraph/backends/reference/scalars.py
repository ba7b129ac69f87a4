"""The NumPy function of each scalar operation, for scalars, vectors and arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.dialects import arith, complex, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation

from popgraph.backends.reference.memory import literal_value, numpy_dtype
from popgraph.dialects import element_types, tile
from popgraph.dialects.tile.numpy_scalars import Function, fused, select, unsigned
from popgraph.dialects.tile.scalars import SCALARS
from popgraph.support.casts import cast
from popgraph.support.threefry import threefry
from popgraph.support.words import WORDS


def convert(value: Any, dtype: np.dtype[np.generic]) -> Any:
    """`value` in another dtype; indices may be Python ints."""
    return cast(value, dtype) if hasattr(value, "astype") else dtype.type(value)


def is_ordered(lhs: Any, rhs: Any) -> Any:
    return (lhs == lhs) & (rhs == rhs)


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
    """The comparison of `arith` for the element type."""
    assert isinstance(op.lhs.type, VectorType)
    if element_types.from_ir(op.lhs.type.element_type).is_float:
        return _FLOAT[op.predicate.value.data]
    return compare_integers(op)


def convert_lanes(op: tile.ConvertOp) -> Function:
    """The conversion of `arith` with the same name."""
    (kind,) = (kind for kind in TYPED if kind.name == op.conversion.data)
    return TYPED[kind](op)


def result_dtype(op: Operation) -> np.dtype[np.generic]:
    return numpy_dtype(op.results[0].type)


def to_result(op: Operation) -> Function:
    """A conversion on which NumPy and LLVM agree."""
    dtype = result_dtype(op)
    return lambda value: convert(value, dtype)


def from_unsigned(op: Operation) -> Function:
    dtype = result_dtype(op)
    return lambda value: convert(unsigned(value), dtype)


def from_signed(op: Operation) -> Function:
    """A conversion from signed integers, where a true `i1` is -1."""
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


def constant(op: arith.ConstantOp | complex.ConstantOp) -> Function:
    value = literal_value(op.value, op.results[0].type)
    return lambda: value


def random_words(op: Operation) -> Function:
    """Threefry on the bits of signed integers."""
    dtype = result_dtype(op)
    return lambda key, counter: cast(threefry(key, counter).view(np.int64), dtype)


TYPED: dict[type[Operation], Callable[[Any], Function]] = {
    arith.ConstantOp: constant,
    complex.ConstantOp: constant,
    arith.CmpiOp: compare_integers,
    arith.CmpfOp: lambda op: _FLOAT[op.predicate.value.data],
    tile.CompareOp: compare_lanes,
    tile.ConvertOp: convert_lanes,
    tile.SelectOp: lambda op: select,
    vector.FMAOp: lambda op: fused,
    tile.DotOp: lambda op: WORDS[op.words.data].dot,
    tile.PickOp: lambda op: op.of,
    tile.ThreefryOp: random_words,
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
}
"""Operations whose function depends on attributes or types, and vector-only operations."""


def function_of(op: Operation) -> Function:
    """The function of an operation: values of operands -> value of the result."""
    kind = type(op)
    if kind in TYPED:
        return TYPED[kind](op)
    function = SCALARS[kind].numpy if kind in SCALARS else None
    assert function is not None, f"{op.name} is not in the scalar vocabulary"
    return function
