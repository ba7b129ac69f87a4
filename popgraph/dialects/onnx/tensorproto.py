"""Converts TensorProtos and sparse tensors to IR attributes and back."""

from __future__ import annotations

import secrets
from math import prod
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import SparseTensorProto, TensorProto, numpy_helper
from xdsl.dialects.builtin import ArrayAttr, IntAttr, TensorType

from popgraph.dialects import element_types
from popgraph.dialects.onnx.attributes import (
    SparseTensorAttr,
    StringTensorAttr,
    TensorAttr,
    array_of,
    elements_of,
)
from popgraph.dialects.onnx.typeproto import cannot_exist, number_from_element
from popgraph.dialects.program import BlobAttr, BytesAttr, WeightStore
from popgraph.support import dtypes
from popgraph.support.array_bytes import array_of_memory, memory_of
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import ModelError, PopgraphError

PAYLOAD = (
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "raw_data",
    "double_data",
    "uint64_data",
)
"""The fields that may hold the elements."""

_STORED_ELSEWHERE = ("dims", "data_type", "external_data")
_NOT_PLAIN = (*PAYLOAD, "external_data", "segment", "data_location")
_HEADER = tuple(
    field.name
    for field in TensorProto.DESCRIPTOR.fields
    if field.name not in _STORED_ELSEWHERE and field.name not in PAYLOAD
)
IN_STORE = f"popgraph.blob.{secrets.token_hex(8)}"
"""
The key in `external_data` of a tensor whose elements the importer has put in the store.

It is random, so that no file can contain it.
"""
PACKED = {"u4": 4, "i4": 4, "f4e2m1": 4, "u2": 2, "i2": 2, "f6e2m3": 6, "f6e3m2": 6}
"""Bits per element of types that protobuf packs into bytes."""


def read_tensor(proto: TensorProto, store: WeightStore) -> TensorAttr:
    """The attribute of a tensor; ModelError if the tensor is damaged."""
    check_tensor(proto)
    header = _header(proto)
    if proto.data_type == TensorProto.STRING:
        if len(proto.string_data) != prod(proto.dims):
            raise _wrong_count(proto)
        elements: Any = StringTensorAttr.of(list(proto.string_data), tuple(proto.dims))
        return TensorAttr.of(elements, "raw", header.SerializeToString())
    if proto.data_location == TensorProto.EXTERNAL:
        header.data_location = TensorProto.DEFAULT  # as onnx.load writes it
    if proto.data_location == TensorProto.EXTERNAL or _is_in_store(proto):
        return TensorAttr.of(_from_store(proto), "raw", header.SerializeToString())
    array = read_array(proto)
    elements = store.attribute(array)
    fields = [name for name in PAYLOAD if _has(proto, name)]
    narrow = dtypes.BY_ONNX[proto.data_type].name in PACKED
    if fields == ["raw_data"] and not narrow:
        return TensorAttr.of(elements, "raw", header.SerializeToString())
    if fields == ["float_data"] and proto.data_type == TensorProto.FLOAT:
        return TensorAttr.of(elements, "typed", header.SerializeToString())
    # The storage that reproduces the message; packed sub-byte types have both.
    for storage in ("raw", "typed"):
        candidate = TensorAttr.of(elements, storage, header.SerializeToString())
        if write_tensor(candidate, store) == proto:
            return candidate
    return TensorAttr.of(elements, "exact", proto.SerializeToString())


def _header(proto: TensorProto) -> TensorProto:
    """The message without elements, which are never accessed: protobuf would copy them."""
    header = TensorProto()
    for name in _HEADER:
        if _has(proto, name):
            _copy_field(header, name, getattr(proto, name))
    return header


def _is_in_store(proto: TensorProto) -> bool:
    return any(entry.key == IN_STORE for entry in proto.external_data)


def _from_store(proto: TensorProto) -> BlobAttr:
    keys = {entry.key: entry.value for entry in proto.external_data}
    if IN_STORE not in keys:
        raise ModelError(
            f"tensor {proto.name!r} is stored in the external file {keys.get('location', '')!r}",
            hint="pass the path of the model, so that files next to it can be found",
        )
    row = dtypes.BY_ONNX[proto.data_type]
    return BlobAttr(
        BytesAttr.of(keys[IN_STORE]), TensorType(element_types.to_ir(row), tuple(proto.dims))
    )


def _has(proto: TensorProto, field: str) -> bool:
    if field == "raw_data":
        return bool(proto.HasField(field))  # reading the field would copy it
    value = getattr(proto, field)
    return len(value) > 0 if hasattr(value, "extend") else bool(proto.HasField(field))


def _copy_field(target: Any, name: str, value: Any) -> None:
    if hasattr(value, "extend") or hasattr(value, "MergeFrom"):
        getattr(target, name).MergeFrom(value)
    else:
        setattr(target, name, value)


def check_tensor(proto: TensorProto) -> None:
    """Raises ModelError for an unknown element type, an impossible shape or a segment."""
    if proto.data_type != TensorProto.STRING and proto.data_type not in dtypes.BY_ONNX:
        raise ModelError(
            f"tensor {proto.name!r} has element type number {proto.data_type}, "
            "which is not one of ONNX's",
            hint="the file is damaged, or newer than this release",
        )
    shape = tuple(proto.dims)
    if cannot_exist(shape):
        raise ModelError(
            f"tensor {proto.name!r} of shape {list(shape)} cannot exist",
            hint="the file is damaged: export the model again",
        )
    if proto.HasField("segment"):
        raise ModelError(
            f"tensor {proto.name!r} is one segment of a larger one",
            hint="save the model with whole tensors",
        )


def read_array(proto: TensorProto) -> Array:
    """The elements as a NumPy array."""
    row = dtypes.BY_ONNX.get(proto.data_type)
    if row is not None and row.name not in PACKED and proto.HasField("raw_data"):
        return _raw_array(proto, row)
    if proto.data_type == TensorProto.FLOAT and len(proto.float_data) == prod(proto.dims):
        return _packed_floats(proto)
    try:
        array: Array = numpy_helper.to_array(proto)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise _wrong_count(proto) from error
    return array


def _raw_array(proto: TensorProto, row: DType) -> Array:
    elements, shape = proto.raw_data, tuple(proto.dims)
    if len(elements) != prod(shape) * row.numpy.itemsize:
        raise _wrong_count(proto)
    return array_of_memory(elements, row.numpy, shape)


def _packed_floats(proto: TensorProto) -> Array:
    """The elements of `float_data`, taken from a message with this field alone: a fast copy."""
    alone = TensorProto()
    alone.float_data.MergeFrom(proto.float_data)
    size = 4 * len(alone.float_data)
    elements = alone.SerializeToString()[-size:] if size else b""
    return array_of_memory(elements, np.dtype(np.float32), tuple(proto.dims))


def _wrong_count(proto: TensorProto) -> ModelError:
    return ModelError(
        f"tensor {proto.name!r} has shape {list(proto.dims)}, but another number of elements",
        hint="the file is damaged: export the model again",
    )


def move_to_store(rest: bytes, elements: memoryview, store: WeightStore) -> bytes | None:
    """
    Moves the elements of a tensor to the store; returns the bytes that replace them in its message.

    `rest` is the message without them. None if they are not plain elements of its shape.
    """
    try:
        proto = TensorProto.FromString(rest)
    except DecodeError:
        return None
    row = dtypes.BY_ONNX.get(proto.data_type)
    if row is None or row.name in PACKED or any(_has(proto, name) for name in _NOT_PLAIN):
        return None
    if any(dim < 0 for dim in proto.dims) or prod(proto.dims) * row.numpy.itemsize != len(elements):
        return None
    array = array_of_memory(elements, row.numpy, tuple(proto.dims))
    held = store.attribute(array)
    if not isinstance(held, BlobAttr):
        return None
    mark = TensorProto()
    mark.external_data.add(key=IN_STORE, value=held.key.text)
    return bytes(mark.SerializeToString())


def write_tensor(attribute: TensorAttr, store: WeightStore | None) -> TensorProto:
    """The TensorProto as `read_tensor` read it, or the canonical one."""
    if attribute.storage.data == "exact":
        return TensorProto.FromString(attribute.header.data)
    proto = TensorProto()
    proto.dims.extend(attribute.type.get_shape())
    proto.data_type = number_from_element(attribute.type.element_type)
    held = attribute.held
    if isinstance(held, StringTensorAttr):
        proto.string_data.extend(held.strings.data)
    elif attribute.storage.data == "raw":
        proto.raw_data = _raw_bytes(array_of(held, store))
    else:
        _write_typed(proto, array_of(held, store))
    if attribute.header.data:
        proto.MergeFrom(TensorProto.FromString(attribute.header.data))
    return proto


def _raw_bytes(array: Array) -> bytes:
    """Little-endian bytes; sub-byte elements are packed, the first in the lowest bits."""
    name = dtypes.from_numpy(array.dtype).name
    if name in PACKED:
        return bytes(numpy_helper.from_array(array).raw_data)
    return bytes(memory_of(array))


def _write_typed(proto: TensorProto, array: Array) -> None:
    """Writes one entry per element into the field of the element type."""
    # NumPy's buffers require alignment; a weight may start at any byte of its file.
    flat = np.require(array, requirements=["C", "ALIGNED"]).reshape(-1)
    row = dtypes.from_numpy(array.dtype)
    if row.name in ("f32", "c64"):
        _pack_floats(proto, flat.view(np.float32))
    elif row.name in ("f64", "c128"):
        proto.double_data.extend(flat.view(np.float64).data)
    elif row.name == "i64":
        proto.int64_data.extend(flat.tolist())
    elif row.name in ("u32", "u64"):
        proto.uint64_data.extend(flat.tolist())
    elif row.name in PACKED:
        proto.int32_data.extend(np.frombuffer(_raw_bytes(array), np.uint8).tolist())
    elif row.is_float:
        bits = np.uint16 if array.itemsize == 2 else np.uint8
        proto.int32_data.extend(flat.view(bits).tolist())
    else:
        proto.int32_data.extend(flat.astype(np.int32).tolist())


def _pack_floats(proto: TensorProto, array: Array) -> None:
    """Writes `float_data` by its wire format: the encoding of `raw_data` with another field key."""
    if array.size:
        raw = TensorProto(raw_data=bytes(memory_of(array))).SerializeToString()
        key = TensorProto(float_data=[0.0]).SerializeToString()[:1]
        proto.MergeFromString(key + raw[1:])


def read_sparse(proto: SparseTensorProto, store: WeightStore) -> SparseTensorAttr:
    """The attribute of a sparse tensor; ModelError if values and indices do not fit."""
    values, indices = read_tensor(proto.values, store), read_tensor(proto.indices, store)
    shape = ArrayAttr([IntAttr(dim) for dim in proto.dims])
    attribute = SparseTensorAttr(values, indices, shape)
    check_sparse(attribute, store, f"sparse tensor {proto.values.name!r}")
    return attribute


def check_sparse(attribute: SparseTensorAttr, store: WeightStore, what: str) -> None:
    """Raises ModelError unless values, indices and shape fit."""
    shape = [dim.data for dim in attribute.shape]
    if cannot_exist(shape):
        raise ModelError(f"{what} of shape {shape} cannot exist")
    count = attribute.values.type.get_shape()
    found = attribute.indices.type.get_shape()
    if len(count) != 1 or found not in {count, (*count, len(shape))}:
        raise ModelError(
            f"{what} has values of shape {count}, but indices of shape {found}",
            hint="write one index, or one row of indices, per value",
        )
    places = array_of(attribute.indices.held, store)
    limits = np.array(shape if places.ndim == 2 else [prod(shape)])
    if places.size and (places.min() < 0 or (places >= limits).any()):
        raise ModelError(f"{what} has an index outside its shape {shape}")


def write_sparse(attribute: SparseTensorAttr, store: WeightStore | None) -> SparseTensorProto:
    return SparseTensorProto(
        values=write_tensor(attribute.values, store),
        indices=write_tensor(attribute.indices, store),
        dims=[dim.data for dim in attribute.shape],
    )


def from_value(value: object, store: WeightStore) -> TensorAttr:
    """The attribute of an array, a number or a TensorProto."""
    if isinstance(value, TensorAttr):
        return value
    if isinstance(value, TensorProto):
        return read_tensor(value, store)
    from_array = np.asarray(value)
    try:
        return TensorAttr.of(elements_of(from_array, store))
    except KeyError as error:
        raise PopgraphError(f"ONNX has no tensors of {from_array.dtype}") from error
