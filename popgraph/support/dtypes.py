"""Which element types exist, and what is each called in NumPy, ONNX, PopART, `.pgraph` and IR?"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    BFloat16Type,
    ComplexType,
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
)
from xdsl.ir import Attribute


@dataclass(frozen=True)
class DType:
    """One element type under all its names."""

    name: str
    """As `.pgraph` and messages spell it."""
    numpy: np.dtype[np.generic]
    ir: Attribute
    onnx: int
    """The number in `TensorProto.DataType`."""
    popart: str
    """As PopART's `DataType` and `TensorInfo` spell it."""

    @property
    def is_float(self) -> bool:
        return self.name.startswith(("f", "bf"))

    @property
    def is_integer(self) -> bool:
        return self.name.startswith(("i", "u"))


def _row(name: str, numpy: object, ir: Attribute, onnx: int, popart: str) -> DType:
    return DType(name, np.dtype(numpy), ir, onnx, popart)  # type: ignore[call-overload]


def _unsigned(width: int) -> IntegerType:
    return IntegerType(width, Signedness.UNSIGNED)


DTYPES: tuple[DType, ...] = (
    _row("f32", np.float32, Float32Type(), 1, "FLOAT"),
    _row("u8", np.uint8, _unsigned(8), 2, "UINT8"),
    _row("i8", np.int8, IntegerType(8), 3, "INT8"),
    _row("u16", np.uint16, _unsigned(16), 4, "UINT16"),
    _row("i16", np.int16, IntegerType(16), 5, "INT16"),
    _row("i32", np.int32, IntegerType(32), 6, "INT32"),
    _row("i64", np.int64, IntegerType(64), 7, "INT64"),
    _row("bool", np.bool_, IntegerType(1), 9, "BOOL"),
    _row("f16", np.float16, Float16Type(), 10, "FLOAT16"),
    _row("f64", np.float64, Float64Type(), 11, "DOUBLE"),
    _row("u32", np.uint32, _unsigned(32), 12, "UINT32"),
    _row("u64", np.uint64, _unsigned(64), 13, "UINT64"),
    _row("c64", np.complex64, ComplexType(Float32Type()), 14, "COMPLEX64"),
    _row("c128", np.complex128, ComplexType(Float64Type()), 15, "COMPLEX128"),
    _row("bf16", ml_dtypes.bfloat16, BFloat16Type(), 16, "BFLOAT16"),
    _row("f8e4m3fn", ml_dtypes.float8_e4m3fn, Float8E4M3FNType(), 17, "FLOAT8E4M3FN"),
    _row("f8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, Float8E4M3FNUZType(), 18, "FLOAT8_143"),
    _row("f8e5m2", ml_dtypes.float8_e5m2, Float8E5M2Type(), 19, "FLOAT8E5M2"),
    _row("f8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, Float8E5M2FNUZType(), 20, "FLOAT8_152"),
    _row("u4", ml_dtypes.uint4, _unsigned(4), 21, "UINT4"),
    _row("i4", ml_dtypes.int4, IntegerType(4), 22, "INT4"),
    _row("f4e2m1", ml_dtypes.float4_e2m1fn, Float4E2M1FNType(), 23, "FLOAT4E2M1"),
    _row("f8e8m0", ml_dtypes.float8_e8m0fnu, Float8E8M0FNUType(), 24, "FLOAT8E8M0"),
    _row("u2", ml_dtypes.uint2, _unsigned(2), 25, "UINT2"),
    _row("i2", ml_dtypes.int2, IntegerType(2), 26, "INT2"),
    _row("f6e2m3", ml_dtypes.float6_e2m3fn, Float6E2M3FNType(), 27, "FLOAT6E2M3"),
    _row("f6e3m2", ml_dtypes.float6_e3m2fn, Float6E3M2FNType(), 28, "FLOAT6E3M2"),
)

BY_NAME = {row.name: row for row in DTYPES}
BY_ONNX = {row.onnx: row for row in DTYPES}
BY_POPART = {row.popart: row for row in DTYPES}
_BY_NUMPY = {row.numpy: row for row in DTYPES}
_BY_IR = {row.ir: row for row in DTYPES}


def from_numpy(dtype: object) -> DType:
    """The row of a NumPy dtype; KeyError when ONNX has no such element type."""
    return _BY_NUMPY[np.dtype(dtype)]  # type: ignore[call-overload]


def from_ir(type_: Attribute) -> DType:
    """The row of an IR element type; KeyError for types that hold no numbers."""
    return _BY_IR[type_]
