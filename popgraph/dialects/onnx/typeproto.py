"""Converts TypeProtos to IR types and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, TypeProto, ValueInfoProto
from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute

from popgraph.dialects import element_types
from popgraph.dialects.onnx.attributes import TypeAttr, ValueInfoAttr
from popgraph.dialects.onnx.types import (
    STRING,
    UNKNOWN,
    Dim,
    MapType,
    OpaqueType,
    OptType,
    SeqType,
    SparseType,
    StringType,
    UnknownType,
    dims,
    tensor_type,
)
from popgraph.dialects.program import BytesAttr
from popgraph.support import dtypes
from popgraph.support.errors import ModelError

MAX_ELEMENTS = 1 << 48
"""An upper bound on elements, the address space of x86-64: with more, the model is damaged."""


def cannot_exist(shape: Sequence[Dim]) -> bool:
    """Whether no tensor can have this shape; dimensions of empty tensors are checked too."""
    sizes = [dim for dim in shape if isinstance(dim, int)]
    return min(sizes, default=0) < 0 or prod(filter(None, sizes)) > MAX_ELEMENTS


def element_from_number(number: int) -> Attribute:
    """The element type of a `TensorProto.DataType`."""
    if number == TensorProto.STRING:
        return STRING
    if number == TensorProto.UNDEFINED:
        return UNKNOWN
    if number not in dtypes.BY_ONNX:
        raise ModelError(
            f"element type number {number} is not one of ONNX's",
            hint="the file is damaged, or newer than this release",
        )
    return element_types.to_ir(dtypes.BY_ONNX[number])


def number_from_element(element: Attribute) -> int:
    """The `TensorProto.DataType` of an element type."""
    if isinstance(element, StringType):
        return int(TensorProto.STRING)
    if isinstance(element, UnknownType):
        return int(TensorProto.UNDEFINED)
    return element_types.from_ir(element).onnx


def read_type(proto: TypeProto) -> Attribute:
    """The IR type, without denotations."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return _read_tensor(proto.tensor_type)
        case "sparse_tensor_type":
            return SparseType(_read_tensor(proto.sparse_tensor_type))
        case "sequence_type":
            return SeqType(read_type(proto.sequence_type.elem_type))
        case "optional_type":
            return OptType(read_type(proto.optional_type.elem_type))
        case "map_type":
            key = element_from_number(proto.map_type.key_type)
            return MapType(key, read_type(proto.map_type.value_type))
        case "opaque_type":
            opaque = proto.opaque_type
            return OpaqueType(BytesAttr.of(opaque.domain), BytesAttr.of(opaque.name))
        case _:
            return UNKNOWN


def _read_tensor(proto: TypeProto.Tensor | TypeProto.SparseTensor) -> Attribute:
    element = element_from_number(proto.elem_type)
    if not proto.HasField("shape"):
        return UNKNOWN if element == UNKNOWN else UnrankedTensorType(element)
    shape = [_read_dim(dim) for dim in proto.shape.dim]
    if cannot_exist(shape):
        raise ModelError(
            f"a tensor of shape {shape} cannot exist",
            hint="the file is damaged: no memory holds that many elements",
        )
    return tensor_type(element, shape)


def _read_dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    """Negative sizes and `?`, which some exporters write, mean unknown sizes."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return dim.dim_param if dim.dim_param not in ("", "?") else None


def write_type(type_: Attribute) -> TypeProto:
    """The TypeProto of an IR type; empty for an unknown one."""
    proto = TypeProto()
    match type_:
        case TensorType() | UnrankedTensorType():
            _write_tensor(proto.tensor_type, type_)
        case SparseType():
            _write_tensor(proto.sparse_tensor_type, type_.dense)
        case SeqType():
            proto.sequence_type.elem_type.CopyFrom(write_type(type_.element))
        case OptType():
            proto.optional_type.elem_type.CopyFrom(write_type(type_.element))
        case MapType():
            proto.map_type.key_type = number_from_element(type_.key)
            proto.map_type.value_type.CopyFrom(write_type(type_.value))
        case OpaqueType():
            proto.opaque_type.domain = type_.domain.text
            proto.opaque_type.name = type_.type_name.text
        case _:
            pass
    return proto


def _write_tensor(proto: TypeProto.Tensor | TypeProto.SparseTensor, type_: Attribute) -> None:
    assert isinstance(type_, TensorType | UnrankedTensorType)
    proto.elem_type = number_from_element(type_.element_type)
    shape = dims(type_)
    if shape is None:
        return
    proto.shape.SetInParent()
    for dim in shape:
        made = proto.shape.dim.add()
        if isinstance(dim, int):
            made.dim_value = dim
        elif dim is not None:
            made.dim_param = dim


def read_type_attribute(proto: TypeProto) -> TypeAttr:
    type_ = read_type(proto)
    exact = b"" if write_type(type_) == proto else proto.SerializeToString()
    return TypeAttr(type_, BytesAttr(exact))


def type_attribute_of(data: bytes) -> TypeAttr | None:
    """The attribute of a serialized TypeProto; None for other bytes."""
    try:
        return read_type_attribute(TypeProto.FromString(data))
    except DecodeError:
        return None


def write_type_attribute(attribute: TypeAttr) -> TypeProto:
    if attribute.exact.data:
        return TypeProto.FromString(attribute.exact.data)
    return write_type(attribute.type)


def read_value_info(proto: ValueInfoProto) -> ValueInfoAttr:
    info = ValueInfoAttr.of(proto.name, read_type(proto.type))
    if write_value_info(info) == proto:
        return info
    return ValueInfoAttr.of(proto.name, info.type, proto.SerializeToString())


def write_value_info(info: ValueInfoAttr) -> ValueInfoProto:
    if info.exact.data:
        proto = ValueInfoProto.FromString(info.exact.data)
        if read_type(proto.type) == info.type and proto.name == info.text:
            return proto
        kept = ValueInfoProto(name=info.text)
        if proto.HasField("doc_string"):
            kept.doc_string = proto.doc_string
        kept.metadata_props.extend(proto.metadata_props)
        kept.type.CopyFrom(write_type(info.type))
        return kept
    made = ValueInfoProto(name=info.text)
    if info.type != UNKNOWN:
        made.type.CopyFrom(write_type(info.type))
    return made


_ELEMENTS = {
    **{
        TensorProto.DataType.Name(number).lower(): number
        for number in TensorProto.DataType.values()
    }
}


def from_text(text: str) -> Attribute:
    """The shapeless type of a schema's text, such as `seq(tensor(float))`."""
    if match := re.fullmatch(r"tensor\((\w+)\)", text):
        return UnrankedTensorType(element_from_number(_ELEMENTS[match[1]]))
    if match := re.fullmatch(r"(seq|optional|sparse_tensor)\((.*)\)", text):
        made = {"seq": SeqType, "optional": OptType}[match[1]]
        return made(from_text(match[2]))
    if match := re.fullmatch(r"map\((\w+),\s*(.*)\)", text):
        return MapType(element_from_number(_ELEMENTS[match[1]]), from_text(match[2]))
    raise AssertionError(f"unknown type {text} in a schema")
