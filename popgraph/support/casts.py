"""Casts: how elements of one type become those of another in NumPy, whatever the machine."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from popgraph.support import dtypes

Elements: TypeAlias = Any
"""An array or a scalar of NumPy's."""

_NATIVE = frozenset({"f16", "f32", "f64"})
"""Floats that NumPy itself knows; ml_dtypes makes all others from f32, not always by itself."""
_NARROW = {"i4": np.int8, "i2": np.int8, "u4": np.uint8, "u2": np.uint8}
"""Integers that ml_dtypes does not cast to all other types, and those that hold them."""


def cast(value: Elements, dtype: np.dtype[Any]) -> Elements:
    """
    Elements as another type has them.

    Floats are rounded to the nearest, to even from halfway. Integers keep their low bits, and so
    does the whole part of a float, of which NumPy makes what the machine makes; infinities and NaN
    become 0.
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
    """The whole part of f64, modulo 2^64."""
    whole = np.where(np.isfinite(value), np.trunc(value), 0.0)
    rest = np.fmod(whole, 2.0**64)
    size = np.abs(rest).astype(np.uint64)
    bits = np.where(rest < 0, np.uint64(0) - size, size)
    return bits if isinstance(value, np.ndarray) else bits[()]
