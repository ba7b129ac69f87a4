"""Converts AttributeProtos to IR attributes and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import AttributeProto, SparseTensorProto, TensorProto, TypeProto
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    f32,
    i64,
)
from xdsl.ir import Attribute

from popgraph.dialects.onnx.attributes import (
    FloatsAttr,
    ManyAttr,
    RefAttr,
    SparseTensorAttr,
    TensorAttr,
    TypeAttr,
)
from popgraph.dialects.onnx.tensorproto import (
    from_value,
    read_sparse,
    read_tensor,
    write_sparse,
    write_tensor,
)
from popgraph.dialects.onnx.typeproto import read_type_attribute, write_type_attribute
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.support.errors import ModelError, PopgraphError

_FIELDS = {
    "FLOAT": "f",
    "INT": "i",
    "STRING": "s",
    "TENSOR": "t",
    "GRAPH": "g",
    "SPARSE_TENSOR": "sparse_tensor",
    "TYPE_PROTO": "tp",
    "FLOATS": "floats",
    "INTS": "ints",
    "STRINGS": "strings",
    "TENSORS": "tensors",
    "GRAPHS": "graphs",
    "SPARSE_TENSORS": "sparse_tensors",
    "TYPE_PROTOS": "type_protos",
}
"""The field of an AttributeProto for each kind."""


def kind_of(proto: AttributeProto) -> str:
    """FLOAT, INT, ...; for very old files without a type, by the field that is set."""
    if proto.type != AttributeProto.UNDEFINED:
        return str(AttributeProto.AttributeType.Name(proto.type))
    filled = {field.name for field, _ in proto.ListFields()}
    for kind, field in _FIELDS.items():
        if field in filled:
            return kind
    if proto.ref_attr_name:
        return "UNDEFINED"
    raise ModelError(
        f"attribute {proto.name!r} has no value and no type",
        hint="the file is damaged: export the model again",
    )


def read_attribute(proto: AttributeProto, store: WeightStore | None = None) -> Attribute:
    """The IR attribute of any kind except graphs."""
    kind = kind_of(proto)
    if proto.ref_attr_name:
        return RefAttr(BytesAttr.of(proto.ref_attr_name), StringAttr(kind))
    store = store if store is not None else WeightStore()
    match kind:
        case "FLOAT":
            return FloatAttr(proto.f, f32)
        case "INT":
            return IntegerAttr(proto.i, i64)
        case "STRING":
            return BytesAttr(proto.s)
        case "TENSOR":
            return read_tensor(proto.t, store)
        case "SPARSE_TENSOR":
            return read_sparse(proto.sparse_tensor, store)
        case "TYPE_PROTO":
            return read_type_attribute(proto.tp)
        case "FLOATS":
            return FloatsAttr.of(proto.floats)
        case "INTS":
            return DenseArrayBase.from_list(i64, list(proto.ints))
        case "STRINGS":
            return NamesAttr(tuple(proto.strings))
        case "TENSORS":
            return _many(kind, [read_tensor(one, store) for one in proto.tensors])
        case "SPARSE_TENSORS":
            return _many(kind, [read_sparse(one, store) for one in proto.sparse_tensors])
        case "TYPE_PROTOS":
            return _many(kind, [read_type_attribute(one) for one in proto.type_protos])
        case _:
            raise AssertionError(f"{kind} is not an IR attribute")


def _many(kind: str, items: Sequence[Attribute]) -> ManyAttr:
    return ManyAttr(StringAttr(kind), ArrayAttr(items))


def kind_of_attribute(attribute: Attribute) -> str:
    """FLOAT, INT, ...: the kind of any IR attribute except graphs."""
    if isinstance(attribute, RefAttr | ManyAttr):
        return attribute.kind.data
    return next(kind for held, kind in _OF_CLASSES.items() if isinstance(attribute, held))


_OF_CLASSES: Mapping[type[Attribute], str] = {
    FloatAttr: "FLOAT",
    IntegerAttr: "INT",
    BytesAttr: "STRING",
    TensorAttr: "TENSOR",
    SparseTensorAttr: "SPARSE_TENSOR",
    TypeAttr: "TYPE_PROTO",
    FloatsAttr: "FLOATS",
    DenseArrayBase: "INTS",
    NamesAttr: "STRINGS",
}


def write_attribute(
    name: str, attribute: Attribute, store: WeightStore | None = None
) -> AttributeProto:
    """The AttributeProto in canonical form."""
    proto = AttributeProto(name=name)
    kind = _fill(proto, attribute, store)
    proto.type = AttributeProto.AttributeType.Value(kind)
    return proto


def _fill(proto: AttributeProto, attribute: Attribute, store: WeightStore | None) -> str:
    """Sets the field of the value; returns its kind."""
    match attribute:
        case FloatAttr():
            proto.f = attribute.value.data
            return "FLOAT"
        case IntegerAttr():
            proto.i = attribute.value.data
            return "INT"
        case BytesAttr():
            proto.s = attribute.data
            return "STRING"
        case TensorAttr():
            proto.t.CopyFrom(write_tensor(attribute, store))
            return "TENSOR"
        case SparseTensorAttr():
            proto.sparse_tensor.CopyFrom(write_sparse(attribute, store))
            return "SPARSE_TENSOR"
        case TypeAttr():
            proto.tp.CopyFrom(write_type_attribute(attribute))
            return "TYPE_PROTO"
        case FloatsAttr():
            proto.floats.extend(attribute.values)
            return "FLOATS"
        case DenseArrayBase():
            proto.ints.extend(attribute.get_values())
            return "INTS"
        case NamesAttr():
            proto.strings.extend(attribute.data)
            return "STRINGS"
        case RefAttr():
            proto.ref_attr_name = attribute.attribute.text
            return attribute.kind.data
        case ManyAttr():
            field = getattr(proto, _FIELDS[attribute.kind.data])
            field.extend(_write_item(item, store) for item in attribute.items)
            return attribute.kind.data
        case _:
            raise AssertionError(f"{attribute} is not the value of an ONNX attribute")


def _write_item(
    item: Attribute, store: WeightStore | None
) -> TensorProto | SparseTensorProto | TypeProto:
    match item:
        case TensorAttr():
            return write_tensor(item, store)
        case SparseTensorAttr():
            return write_sparse(item, store)
        case TypeAttr():
            return write_type_attribute(item)
        case _:
            raise AssertionError(f"{item} is not an item of an ONNX attribute")


def from_python(name: str, value: object, kind: str | None, store: WeightStore) -> Attribute:
    """
    The IR attribute of a Python value, for the kind in a schema.

    Without a kind (custom operators) the value decides: a list of integers is INTS; with a float
    among them it is FLOATS.
    """
    if isinstance(value, Attribute):
        return value
    if isinstance(value, AttributeProto):
        return read_attribute(value, store)
    kind = kind or _guess(value)
    try:
        return _convert(value, kind, store)
    except (TypeError, ValueError, PopgraphError) as error:
        raise ModelError(
            f"attribute {name!r} must be {kind}, not {value!r}",
            hint=_EXAMPLES.get(kind, ""),
        ) from error


_EXAMPLES = {
    "INT": "pass an integer",
    "INTS": "pass a list of integers",
    "FLOAT": "pass a number",
    "FLOATS": "pass a list of numbers",
    "STRING": "pass a string",
    "STRINGS": "pass a list of strings",
    "TENSOR": "pass a NumPy array",
}


def _guess(value: object) -> str:
    match value:
        case bool() | int() | np.integer() | np.bool_():
            return "INT"
        case float() | np.floating():
            return "FLOAT"
        case str() | bytes():
            return "STRING"
        case np.ndarray() | TensorProto():
            return "TENSOR"
        case TypeProto():
            return "TYPE_PROTO"
        case SparseTensorProto():
            return "SPARSE_TENSOR"
        case Sequence():
            kinds = {_guess(item) for item in value}
            if kinds <= {"INT"}:
                return "INTS"
            if kinds <= {"INT", "FLOAT"}:
                return "FLOATS"
            if len(kinds) == 1 and f"{min(kinds)}S" in _FIELDS:
                return f"{min(kinds)}S"
    raise ModelError(
        f"{value!r} cannot be the value of an ONNX attribute",
        hint="pass a number, a string, an array or a list of these",
    )


def _whole(value: object) -> int:
    number = int(value)  # type: ignore[call-overload]
    if isinstance(value, str | bytes) or number != value:
        raise ValueError(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(value)
    return int(number)


def _single(value: object) -> float:
    if isinstance(value, str | bytes):
        raise ValueError(value)
    return float(np.float32(value))  # type: ignore[arg-type]


def _string(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(value)
    return value.encode()


def _items(value: object) -> list[object]:
    if isinstance(value, str | bytes | Mapping):
        raise TypeError(value)
    return list(value)  # type: ignore[call-overload,no-any-return]


def _convert(value: object, kind: str, store: WeightStore) -> Attribute:
    match kind:
        case "INT":
            return IntegerAttr(_whole(value), i64)
        case "INTS":
            return DenseArrayBase.from_list(i64, [_whole(item) for item in _items(value)])
        case "FLOAT":
            return FloatAttr(_single(value), f32)
        case "FLOATS":
            return FloatsAttr.of([_single(item) for item in _items(value)])
        case "STRING":
            return BytesAttr(_string(value))
        case "STRINGS":
            return NamesAttr(tuple(_string(item) for item in _items(value)))
        case "TENSOR":
            return from_value(value, store)
        case "SPARSE_TENSOR" if isinstance(value, SparseTensorProto):
            return read_sparse(value, store)
        case "TYPE_PROTO" if isinstance(value, TypeProto):
            return read_type_attribute(value)
        case "TENSORS":
            return _many(kind, [from_value(item, store) for item in _items(value)])
        case "SPARSE_TENSORS" | "TYPE_PROTOS":
            singular = kind.removesuffix("S")
            return _many(kind, [_convert(item, singular, store) for item in _items(value)])
        case _:
            raise TypeError(value)
