"""The IR types of element types, and their sizes."""

from __future__ import annotations

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
    MemRefType,
    Signedness,
    TensorType,
)
from xdsl.ir import Attribute

from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.words import WORDS


def _unsigned(width: int) -> IntegerType:
    return IntegerType(width, Signedness.UNSIGNED)


BY_NAME: dict[str, Attribute] = {
    "f32": Float32Type(),
    "u8": _unsigned(8),
    "i8": IntegerType(8),
    "u16": _unsigned(16),
    "i16": IntegerType(16),
    "i32": IntegerType(32),
    "i64": IntegerType(64),
    "bool": IntegerType(1),
    "f16": Float16Type(),
    "f64": Float64Type(),
    "u32": _unsigned(32),
    "u64": _unsigned(64),
    "c64": ComplexType(Float32Type()),
    "c128": ComplexType(Float64Type()),
    "bf16": BFloat16Type(),
    "f8e4m3fn": Float8E4M3FNType(),
    "f8e4m3fnuz": Float8E4M3FNUZType(),
    "f8e5m2": Float8E5M2Type(),
    "f8e5m2fnuz": Float8E5M2FNUZType(),
    "u4": _unsigned(4),
    "i4": IntegerType(4),
    "f4e2m1": Float4E2M1FNType(),
    "f8e8m0": Float8E8M0FNUType(),
    "u2": _unsigned(2),
    "i2": IntegerType(2),
    "f6e2m3": Float6E2M3FNType(),
    "f6e3m2": Float6E3M2FNType(),
}
"""IR types by the names of `support/dtypes.py`."""

_FROM_IR = {type_: dtypes.BY_NAME[name] for name, type_ in BY_NAME.items()}


def to_ir(dtype: DType) -> Attribute:
    """The IR type of an element type."""
    return BY_NAME[dtype.name]


def from_ir(type_: Attribute) -> DType:
    """The element type of an IR type; KeyError for types that hold no numbers."""
    return _FROM_IR[type_]


def words_accumulator(words: str) -> Attribute:
    """The accumulator type of packed words of this kind."""
    return to_ir(dtypes.from_numpy(WORDS[words].total))


def element_bytes(type_: Attribute) -> int:
    """The bytes of one element: of a tensor, a memref, or a value of an element type."""
    element = type_.element_type if isinstance(type_, TensorType | MemRefType) else type_
    return from_ir(element).numpy.itemsize


def is_number(type_: Attribute) -> bool:
    """Whether NumPy arrays can hold elements of this type."""
    return type_ in _FROM_IR
