"""Walks protobuf's wire format, so that large weights are read without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from onnx import GraphProto, ModelProto, TensorProto

LARGE = 1 << 12
"""Minimal bytes of a tensor that is worth extracting from the message."""

_GRAPH = ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER = GraphProto.INITIALIZER_FIELD_NUMBER
_RAW = TensorProto.RAW_DATA_FIELD_NUMBER
_ELSEWHERE = (TensorProto.EXTERNAL_DATA_FIELD_NUMBER, TensorProto.SEGMENT_FIELD_NUMBER)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Marking: TypeAlias = Callable[[bytes, memoryview], bytes | None]
"""
Called with the rest of a tensor's message and its elements; returns their replacement.

None keeps the elements in the message.
"""


class _Field(NamedTuple):
    """A field of a message at bytes `start` to `end`; its value starts at `value`."""

    number: int
    kind: int
    start: int
    value: int
    end: int


def without_weights(data: memoryview, mark: Marking) -> bytes | None:
    """
    The model's bytes without large `raw_data` of initializers, for protobuf to parse.

    None if anything is irregular; protobuf then reports the error.
    """
    try:
        return _replaced(data, _GRAPH, lambda graph: _graph(graph, mark))
    except ValueError:
        return None


def _graph(data: memoryview, mark: Marking) -> bytes:
    return _replaced(data, _INITIALIZER, lambda tensor: _tensor(tensor, mark))


def _tensor(data: memoryview, mark: Marking) -> bytes:
    """A tensor, without its elements if they are large and stored as one `raw_data` field."""
    fields = list(_fields(data))
    raw = [field for field in fields if field.number == _RAW]
    others = {field.number for field in fields}
    if len(raw) != 1 or raw[0].kind != _BYTES or others & set(_ELSEWHERE):
        return bytes(data)
    (field,) = raw
    if field.end - field.value < LARGE:
        return bytes(data)
    rest = bytes(data[: field.start]) + bytes(data[field.end :])
    instead = mark(rest, data[field.value : field.end])
    return bytes(data) if instead is None else rest + instead


def _replaced(data: memoryview, number: int, change: Callable[[memoryview], bytes]) -> bytes:
    """A message with every field of one number replaced."""
    parts, done = list[bytes](), 0
    for field in _fields(data):
        if field.number == number:
            if field.kind != _BYTES:
                raise ValueError("a message of another kind")
            value = change(data[field.value : field.end])
            parts += [bytes(data[done : field.start]), _head(number), _varint(len(value)), value]
            done = field.end
    return b"".join([*parts, bytes(data[done:])])


def _fields(data: memoryview) -> Iterator[_Field]:
    """The fields of a message; ValueError if it is truncated or has groups."""
    position, size = 0, len(data)
    while position < size:
        start = position
        key, position = _read_varint(data, position)
        number, kind, length = key >> 3, key & 7, 0
        if kind == _VARINT:
            _, end = _read_varint(data, position)
            yield _Field(number, kind, start, position, end)
            position = end
            continue
        if kind == _BYTES:
            length, position = _read_varint(data, position)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("a group")
        if number == 0 or position + length > size:
            raise ValueError("the message ends too early")
        yield _Field(number, kind, start, position, position + length)
        position += length


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """A varint and the position after it."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("no number")
        byte = data[position]
        value |= (byte & 127) << shift
        position += 1
        if byte < 128:
            return value, position
        shift += 7


def _head(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
