"""Casts between element types with NumPy, with the same results on every machine."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from popgraph.support import dtypes

Elements: TypeAlias = Any
"""A NumPy array or scalar."""

_NATIVE = frozenset({"f16", "f32", "f64"})
"""Floats native to NumPy; ml_dtypes converts all others via f32, with gaps."""
_NARROW = {"i4": np.int8, "i2": np.int8, "u4": np.uint8, "u2": np.uint8}
"""{integer type without all casts in ml_dtypes: type that holds it}."""


def cast(value: Elements, dtype: np.dtype[Any]) -> Elements:
    """
    Converts elements to another type.

    Floats round to nearest, ties to even. Integers keep their low bits, and so does the integer
    part of a float, for which NumPy's result depends on the machine; infinities and NaN become 0.
    """
    if value.dtype == dtype:
        return value
    source, target = dtypes.from_numpy(value.dtype), dtypes.from_numpy(dtype)
    if source.name in _NARROW:
        value = value.astype(_NARROW[source.name])
    with np.errstate(all="ignore"):
        if source.is_float and target.is_integer:
            value = _low_bits(value.astype(np.float64))
        elif target.is_float and target.name not in _NATIVE:
            value = value.astype(np.float32)
        return value.astype(dtype)


def _low_bits(value: Elements) -> Elements:
    """The integer part of f64 values, modulo 2^64."""
    whole = np.where(np.isfinite(value), np.trunc(value), 0.0)
    rest = np.fmod(whole, 2.0**64)
    size = np.abs(rest).astype(np.uint64)
    bits = np.where(rest < 0, np.uint64(0) - size, size)
    return bits if isinstance(value, np.ndarray) else bits[()]
