"""Integer grids: the scale and the zero point for a range of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from popgraph.dialects.graphcore.quantization import SMALLEST_SCALE
from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.errors import ArgumentError
from popgraph.support.names import Names

TYPES = Names(
    "integer type",
    {
        "u8": "uint8 QUInt8",
        "i8": "int8 QInt8",
        "u16": "uint16 QUInt16",
        "i16": "int16 QInt16",
        "u4": "uint4 QUInt4",
        "i4": "int4 QInt4",
    },
)
"""Element types with the names in NumPy and in onnxruntime's `QuantType`."""


def named(given: object, argument: str, allowed: str) -> str:
    """The element type that a string or a member of onnxruntime's `QuantType` names."""
    text = str(getattr(given, "name", given))
    found = TYPES.find(text)
    if found not in allowed.split():
        raise ArgumentError(
            f"{text!r} is not a type for {argument}",
            argument,
            f"choose from {', '.join(TYPES.aliases(one)[0] for one in allowed.split())}",
        )
    return found


@dataclass(frozen=True)
class Grid:
    """
    The integers from `low` to `high`: x is stored as round(x / scale) + zero.

    A `symmetric` grid has the zero point in its middle, and as many steps above as below.
    """

    dtype: str
    low: int
    high: int
    symmetric: bool

    @staticmethod
    def of(dtype: str, *, symmetric: bool, reduced: bool = False) -> Grid:
        """All integers of a type; `reduced` leaves out one bit, so that i16 holds two products."""
        bits = dtypes.BY_NAME[dtype].bits - reduced
        signed = dtype.startswith("i")
        low = -(2 ** (bits - 1)) if signed else 0
        return Grid(dtype, low, low + 2**bits - 1, symmetric)

    @property
    def numpy(self) -> np.dtype[Any]:
        return dtypes.BY_NAME[self.dtype].numpy

    @property
    def middle(self) -> int:
        """The zero point of a symmetric grid."""
        return (self.low + self.high + 1) // 2

    def fitted(self, least: Array, most: Array) -> tuple[Array, Array]:
        """Scales (f32) and zero points whose grids hold 0 and the numbers from least to most."""
        least = np.minimum(np.asarray(least, np.float64), 0)
        most = np.maximum(np.asarray(most, np.float64), 0)
        if self.symmetric:
            size = np.maximum(-least, most)
            scale, zero = size / (self.high - self.middle), np.full(size.shape, self.middle)
        else:
            scale = (most - least) / (self.high - self.low)
        scale = np.where(scale == 0, 1.0, np.maximum(scale, SMALLEST_SCALE)).astype(np.float32)
        if not self.symmetric:
            wanted = np.rint(self.low - least / scale.astype(np.float64))
            zero = np.clip(wanted, self.low, self.high).astype(np.int64)
        return scale, zero

    def rounded(self, x: Array, scale: Array, zero: Array) -> Array:
        """The integers of numbers, as i64; `scale` and `zero` broadcast against them."""
        steps = np.rint(x.astype(np.float32) / scale.astype(np.float32)) + zero
        return np.asarray(np.clip(steps, self.low, self.high).astype(np.int64))

    def restored(self, whole: Array, scale: Array, zero: Array) -> Array:
        """The numbers of integers, in f32."""
        return np.asarray((whole - zero).astype(np.float32) * scale.astype(np.float32))
