"""Scalar arithmetic that NumPy lacks: truncating division, fused multiply-add, erf."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from popgraph.support import dtypes
from popgraph.support.casts import cast

Function: TypeAlias = Callable[..., Any]

_UNSIGNED = {"bool": np.dtype(np.uint8)} | {
    f"i{width}": dtypes.BY_NAME[f"u{width}"].numpy for width in (2, 4, 8, 16, 32, 64)
}


def unsigned(value: Any) -> Any:
    """The bits reinterpreted as unsigned."""
    value = value if hasattr(value, "dtype") else np.int64(value)
    dtype = dtypes.from_numpy(value.dtype)
    return value if dtype.name.startswith("u") else value.view(_UNSIGNED[dtype.name])


def on_unsigned(function: Function) -> Function:
    """`function` on bits reinterpreted as unsigned; the result has the operands' type."""

    def computed(lhs: Any, rhs: Any) -> Any:
        dtype = lhs.dtype if hasattr(lhs, "dtype") else np.int64
        return function(unsigned(lhs), unsigned(rhs)).view(dtype)

    return computed


def select(condition: Any, lhs: Any, rhs: Any) -> Any:
    if isinstance(condition, np.ndarray):
        return np.where(condition, lhs, rhs)
    return lhs if condition else rhs


def divide(lhs: Any, rhs: Any) -> Any:
    """
    Integer division that truncates toward zero.

    x / 0 is 0, and the least integer divided by -1 is itself, as in the generated C: a faulty model
    must not end the process with a signal.
    """
    by_zero = rhs == 0
    divisor = select(by_zero, rhs + 1, rhs)
    quotient = lhs // divisor
    inexact = quotient * divisor != lhs
    rounded = quotient + (inexact & ((lhs < 0) != (divisor < 0)))
    return select(by_zero, rounded - rounded, rounded)


def remainder(lhs: Any, rhs: Any) -> Any:
    """lhs - divide(lhs, rhs) * rhs: has the sign of `lhs`; 0 where `rhs` is 0."""
    return select(rhs == 0, rhs - rhs, lhs - divide(lhs, rhs) * rhs)


def fused(lhs: Any, rhs: Any, addend: Any) -> Any:
    """
    lhs * rhs + addend, rounded once.

    Products of f32 are exact in f64, so of two roundings only the last is visible. It can err where
    the f64 sum is itself a tie. NumPy has nothing wider than f64: f64 rounds twice.
    """
    if addend.dtype == np.float64:
        return lhs * rhs + addend
    wide = np.float64
    return (lhs.astype(wide) * rhs.astype(wide) + addend.astype(wide)).astype(addend.dtype)


_erf = np.frompyfunc(math.erf, 1, 1)


def erf(value: Any) -> Any:
    """The error function, computed in f64 and rounded once."""
    return cast(np.asarray(_erf(value.astype(np.float64)), np.float64)[()], value.dtype)


def power(base: Any, exponent: Any) -> Any:
    """
    base ** exponent, with (-inf) ** 0.5 = inf as in C.

    NumPy computes a square root if a single exponent of 1/2 applies to all: NaN for -inf.
    """
    is_lowest_root = (base == -np.inf) & (exponent == 0.5)
    return select(is_lowest_root, -base, np.power(base, exponent))
