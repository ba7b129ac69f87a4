"""The table of element types, with their names in NumPy, ONNX, PopART and `.pgraph`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type with all its names."""

    name: str
    """The name in `.pgraph` and messages."""
    numpy: np.dtype[np.generic]
    onnx: int
    """The value in `TensorProto.DataType`."""
    popart: str
    """The name in PopART's `DataType` and `TensorInfo`."""

    @property
    def is_float(self) -> bool:
        return self.name.startswith(("f", "bf"))

    @property
    def is_integer(self) -> bool:
        return self.name.startswith(("i", "u"))

    @property
    def is_unsigned(self) -> bool:
        return self.name.startswith("u")

    @property
    def bits(self) -> int:
        """Bits per element; narrower types than a byte occupy one byte each."""
        return _NARROW.get(self.name, self.numpy.itemsize * 8)


_NARROW = {"u2": 2, "i2": 2, "u4": 4, "i4": 4, "f4e2m1": 4, "f6e2m3": 6, "f6e3m2": 6}


def _row(name: str, numpy: object, onnx: int, popart: str) -> DType:
    return DType(name, np.dtype(numpy), onnx, popart)  # type: ignore[call-overload]


DTYPES: tuple[DType, ...] = (
    _row("f32", np.float32, 1, "FLOAT"),
    _row("u8", np.uint8, 2, "UINT8"),
    _row("i8", np.int8, 3, "INT8"),
    _row("u16", np.uint16, 4, "UINT16"),
    _row("i16", np.int16, 5, "INT16"),
    _row("i32", np.int32, 6, "INT32"),
    _row("i64", np.int64, 7, "INT64"),
    _row("bool", np.bool_, 9, "BOOL"),
    _row("f16", np.float16, 10, "FLOAT16"),
    _row("f64", np.float64, 11, "DOUBLE"),
    _row("u32", np.uint32, 12, "UINT32"),
    _row("u64", np.uint64, 13, "UINT64"),
    _row("c64", np.complex64, 14, "COMPLEX64"),
    _row("c128", np.complex128, 15, "COMPLEX128"),
    _row("bf16", ml_dtypes.bfloat16, 16, "BFLOAT16"),
    _row("f8e4m3fn", ml_dtypes.float8_e4m3fn, 17, "FLOAT8E4M3FN"),
    _row("f8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 18, "FLOAT8_143"),
    _row("f8e5m2", ml_dtypes.float8_e5m2, 19, "FLOAT8E5M2"),
    _row("f8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 20, "FLOAT8_152"),
    _row("u4", ml_dtypes.uint4, 21, "UINT4"),
    _row("i4", ml_dtypes.int4, 22, "INT4"),
    _row("f4e2m1", ml_dtypes.float4_e2m1fn, 23, "FLOAT4E2M1"),
    _row("f8e8m0", ml_dtypes.float8_e8m0fnu, 24, "FLOAT8E8M0"),
    _row("u2", ml_dtypes.uint2, 25, "UINT2"),
    _row("i2", ml_dtypes.int2, 26, "INT2"),
    _row("f6e2m3", ml_dtypes.float6_e2m3fn, 27, "FLOAT6E2M3"),
    _row("f6e3m2", ml_dtypes.float6_e3m2fn, 28, "FLOAT6E3M2"),
)

BY_NAME = {row.name: row for row in DTYPES}
BY_ONNX = {row.onnx: row for row in DTYPES}
BY_POPART = {row.popart: row for row in DTYPES}
POPART_ORDER = (
    *("UINT8", "INT8", "FLOAT8_143", "FLOAT8_152", "UINT16", "INT16", "INT32", "INT64", "UINT32"),
    *("UINT64", "BOOL", "FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "COMPLEX64", "COMPLEX128"),
    *("STRING", "UNDEFINED"),
)
"""The members of PopART's `DataType`, whose models number types in this order."""
_BY_NUMPY = {row.numpy: row for row in DTYPES}


def from_numpy(dtype: object) -> DType:
    """The row of a NumPy dtype; KeyError if ONNX has no such element type."""
    return _BY_NUMPY[np.dtype(dtype)]  # type: ignore[call-overload]


def tensor_text(element: str, sizes: Sequence[int | str | None] | None) -> str:
    """A tensor type in the format of messages, `f32[N, 3]`; None means unknown."""
    if sizes is None:
        return f"{element}[...]"
    return f"{element}[{', '.join('?' if size is None else str(size) for size in sizes)}]"
