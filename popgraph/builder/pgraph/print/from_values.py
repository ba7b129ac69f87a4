"""Prints arrays, attributes and types as `.pgraph` expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    TensorType,
    UnrankedTensorType,
)
from xdsl.ir import Attribute

from popgraph.builder.pgraph.lower.initial_values import LOAD, SPARSE, TENSOR
from popgraph.builder.pgraph.syntax.literals import BITS, STRING
from popgraph.builder.pgraph.syntax.tree import (
    AnyType,
    Argument,
    Bytes,
    Call,
    Everything,
    Expression,
    Index,
    Items,
    Name,
    Number,
    OtherType,
    Path,
    Span,
    Text,
    Truth,
    Type,
    Unknown,
)
from popgraph.dialects.onnx.attributeproto import kind_of_attribute
from popgraph.dialects.onnx.attributes import (
    FloatsAttr,
    ManyAttr,
    RefAttr,
    SparseTensorAttr,
    TensorAttr,
    TypeAttr,
    array_of,
)
from popgraph.dialects.onnx.types import (
    MapType,
    NamesAttr,
    OpaqueType,
    OptType,
    SeqType,
    SparseType,
    describe,
    dims,
)
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.support import dtypes
from popgraph.support.arrays import Array

NOWHERE = Span(1, 1, 1, 1)

LARGE = 16
"""Larger arrays are stored in a file, if there is one."""


@dataclass
class WeightFile:
    """A file beside a text for large arrays, by weight name."""

    name: str
    arrays: dict[str, Array] = field(default_factory=dict)

    def keep(self, wanted: str, array: Array) -> str:
        """Stores an array; returns its unique key."""
        key, number = wanted, 1
        while key in self.arrays or key == "__metadata__":
            number += 1
            key = f"{wanted}_{number}"
        self.arrays[key] = array
        return key


_DTYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "stash_type")
"""INT attributes that hold an element type."""

_NAN = np.array(np.nan, np.float32).view(np.uint32).item()


def name(text: str) -> Name:
    return Name(NOWHERE, text)


def call(function: str, *arguments: Expression) -> Call:
    """`f32([0.5, 1.5])`, `constant(0.5)`."""
    path = Path(NOWHERE, (name(function),))
    return Call(NOWHERE, path, tuple(Argument(NOWHERE, None, one) for one in arguments))


# types


def type_text(type_: Attribute) -> AnyType:
    """The type as declared in a text."""
    match type_:
        case TensorType() | UnrankedTensorType():
            dtype, sizes = name(describe(type_.element_type)), dims(type_)
            return Type(NOWHERE, dtype, None if sizes is None else tuple(map(_dim, sizes)))
        case SeqType():
            return _other("sequence", type_text(type_.element))
        case OptType():
            return _other("optional", type_text(type_.element))
        case MapType():
            key = Type(NOWHERE, name(describe(type_.key)), ())
            return _other("map", key, type_text(type_.value))
        case SparseType():
            return _other("sparse", type_text(type_.dense))
        case OpaqueType():
            parts = (type_.domain.text, type_.type_name.text)
            return _other("opaque", *(Text(NOWHERE, part) for part in parts))
        case _:
            return _other("unknown")


def _other(kind: str, *parts: AnyType | Text) -> OtherType:
    return OtherType(NOWHERE, name(kind), parts)


def _dim(size: int | str | None) -> Number | Name | Unknown:
    if size is None:
        return Unknown(NOWHERE)
    return name(size) if isinstance(size, str) else Number(NOWHERE, size)


def type_expression(type_: AnyType | Text) -> Expression:
    """The type as an expression."""
    match type_:
        case Text():
            return type_
        case OtherType(kind=kind, parts=parts):
            return call(kind.text, *map(type_expression, parts))
        case Type(dims=None):
            return Index(NOWHERE, type_.dtype, (Everything(NOWHERE),))
        case Type(dims=()):
            return type_.dtype
        case Type(dims=sizes):
            return Index(NOWHERE, type_.dtype, sizes or ())


def array_type(array: Array) -> Type:
    """The type of an array."""
    sizes = tuple(Number(NOWHERE, size) for size in array.shape)
    return Type(NOWHERE, name(dtype_name(array)), sizes)


# arrays


def dtype_name(array: Array) -> str:
    return STRING if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype).name


def literal(array: Array) -> Expression:
    """An array as a literal that reads back bit for bit."""
    if array.dtype.kind == "O":
        return _nested(array, _string)
    if array.dtype.kind == "b":
        return _nested(array, lambda value: Truth(NOWHERE, bool(value)))
    row = dtypes.from_numpy(array.dtype)
    if row.is_integer:
        return _nested(array, lambda value: Number(NOWHERE, int(value)))
    parts = array if array.dtype.kind != "c" else _parts(array)
    try:
        return _nested(parts, _float)
    except _NoDecimal:
        unsigned = np.ascontiguousarray(parts).view(f"u{parts.dtype.itemsize}")
        bits = _nested(
            unsigned.reshape(parts.shape),
            lambda value: Number(NOWHERE, int(value), f"0x{int(value):x}"),
        )
        return call(BITS, bits)


def _parts(array: Array) -> Array:
    """Complex numbers as pairs, along a last axis."""
    half = np.float32 if array.dtype.itemsize == 8 else np.float64
    return np.ascontiguousarray(array).reshape(-1).view(half).reshape(*array.shape, 2)


def _nested(array: Array, leaf: Callable[[Any], Expression]) -> Expression:
    if array.ndim:
        # The dtype keeps strings as they are: NumPy's own drop NUL at the end.
        rows = (np.asarray(row, array.dtype) for row in array)
        return Items(NOWHERE, tuple(_nested(row, leaf) for row in rows))
    return leaf(array[()])


def _string(value: object) -> Expression:
    data = str(value).encode("utf-8", "surrogateescape")
    return string(data)


def string(data: bytes) -> Text | Bytes:
    r"""`"text"`, or `b"\xff"` if it is not UTF-8."""
    try:
        return Text(NOWHERE, data.decode())
    except UnicodeDecodeError:
        return Bytes(NOWHERE, data)


class _NoDecimal(Exception):
    """No decimal reads back to the same bits."""


def _float(value: object) -> Number:
    assert isinstance(value, np.generic)
    exact = float(value)
    for candidate in (float(str(value)), exact if exact == exact else np.nan):
        if np.asarray(candidate).astype(value.dtype).tobytes() == value.tobytes():
            return Number(NOWHERE, candidate)
    raise _NoDecimal


def is_nested(array: Array) -> bool:
    """Whether nested lists show the shape: not if an axis of size 0 hides later ones."""
    return 0 not in array.shape[:-1]


def tensor(array: Array, label: str, file: WeightFile | None) -> Expression:
    """A tensor with its type: `f32([0.5])`, `tensor(f32[0, 3], [])`."""
    value = initial_value(array, label, file, alone=True)
    if isinstance(value, Name | Call) or not is_nested(array):
        if isinstance(value, Call) and value.path.text == BITS:
            return call(dtype_name(array), value)
        return call(TENSOR, type_expression(array_type(array)), value)
    return call(dtype_name(array), value)


def initial_value(
    array: Array, label: str, file: WeightFile | None, *, alone: bool = False
) -> Expression:
    """The initial value of a weight of this type; with `alone`, `load` names its file."""
    if not is_nested(array):
        return Items(NOWHERE, ())
    if filled := _filled(array):
        return filled
    if file is None or array.size <= LARGE or array.dtype.kind == "O":
        return literal(array)
    key = file.keep(label, array)
    if key == label and not alone:
        return name(LOAD)
    return call(LOAD, Text(NOWHERE, file.name), Text(NOWHERE, key))


def _filled(array: Array) -> Expression | None:
    """`zeros`, `ones`, `constant(0.5)`, if all elements are the same number."""
    if array.size < 2 or array.dtype.kind in "Ob" or array.dtype.kind == "c":
        return None
    first = array.reshape(-1)[:1]
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    same = first.view(np.uint8)
    if not ((flat[:LARGE] == same).all() and (flat == same).all()):
        return None
    number = literal(first[0])
    if not isinstance(number, Number):
        return None
    if number.value == 1 or repr(number.value) in ("0", "0.0"):
        return name("ones" if number.value else "zeros")
    return call("constant", number)


def sparse(
    value: SparseTensorAttr, label: str, weights: WeightStore, file: WeightFile | None
) -> Call:
    """The values of a sparse tensor and their indices."""
    return call(
        SPARSE,
        tensor(array_of(value.values.held, weights), label, file),
        tensor(array_of(value.indices.held, weights), f"{label}.indices", file),
    )


# attributes


class AttributeText:
    """Prints attributes; without a schema, with their kinds if ambiguous."""

    def __init__(self, weights: WeightStore, file: WeightFile | None) -> None:
        self.weights = weights
        self.file = file

    def __call__(self, label: str, attribute: Attribute, *, known: bool) -> Expression:
        """`known`: the operator has a schema, which defines the attribute's kind."""
        value = self.value(label, attribute)
        silent = isinstance(attribute, ManyAttr | RefAttr | TypeAttr) or value == _EMPTY
        if known or not silent:
            return value
        return call(kind_of_attribute(attribute), value)

    def value(self, label: str, attribute: Attribute) -> Expression:
        match attribute:
            case IntegerAttr():
                number = attribute.value.data
                if label in _DTYPE_ATTRIBUTES and number in dtypes.BY_ONNX:
                    return name(dtypes.BY_ONNX[number].name)
                return Number(NOWHERE, number)
            case FloatAttr():
                return _single(attribute.value.data)
            case BytesAttr():
                return string(attribute.data)
            case DenseArrayBase():
                return _items([Number(NOWHERE, one) for one in attribute.get_values()])
            case FloatsAttr():
                return _items([_single(one) for one in attribute.values])
            case NamesAttr():
                return _items([string(one) for one in attribute.data])
            case TensorAttr():
                return tensor(array_of(attribute.held, self.weights), label, self.file)
            case SparseTensorAttr():
                shape = _items([Number(NOWHERE, size.data) for size in attribute.shape])
                made = sparse(attribute, label, self.weights, self.file)
                return call(SPARSE, *(one.value for one in made.arguments), shape)  # type: ignore[arg-type]
            case TypeAttr(exact=exact) if exact.data:
                return Bytes(NOWHERE, exact.data)
            case TypeAttr():
                return type_expression(type_text(attribute.type))
            case ManyAttr():
                return _items([self.value(label, item) for item in attribute.items])
            case RefAttr():
                return name(attribute.attribute.text)
        raise AssertionError(f"{attribute} is not an attribute of a node")


def _items(items: list[Expression]) -> Items:
    return Items(NOWHERE, tuple(items))


_EMPTY = Items(NOWHERE, ())


def _single(value: float) -> Expression:
    """A 32-bit float."""
    narrow = np.float32(value)
    if narrow != narrow and narrow.view(np.uint32) != _NAN:
        bits = int(narrow.view(np.uint32))
        return call(BITS, Number(NOWHERE, bits, f"0x{bits:x}"))
    return Number(NOWHERE, float(str(narrow)))
