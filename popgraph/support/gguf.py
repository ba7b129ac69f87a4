"""Reads GGUF files: metadata, and tensors in floats or in GGML's block formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from popgraph.support import dtypes
from popgraph.support.array_bytes import array_of_memory
from popgraph.support.arrays import Array
from popgraph.support.ggml_blocks import FORMATS, Blocks
from popgraph.support.reading import Unreadable, reading, size_of

MAGIC = b"GGUF"
VERSIONS = (2, 3)
"""Version 1 has counts of 32 bits; no file of it is in use."""

_NUMBERS: Mapping[int, np.dtype[Any]] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
"""Types of metadata that are numbers, by GGUF's numbers."""
_STRING, _ARRAY = 8, 9
_U32, _U64 = 4, 10
_MOST_AXES = 8
_DEFAULT_ALIGNMENT = 32
_LARGEST_ALIGNMENT = 1 << 16

_PLAIN = {
    0: "f32",
    1: "f16",
    24: "i8",
    25: "i16",
    26: "i32",
    27: "i64",
    28: "f64",
    30: "bf16",
}
"""Element types without blocks, by GGML's numbers."""
_UNREAD = {
    16: "iq2_xxs",
    17: "iq2_xs",
    18: "iq3_xxs",
    19: "iq1_s",
    21: "iq3_s",
    22: "iq2_s",
    29: "iq1_m",
    34: "tq1_0",
    35: "tq2_0",
    39: "mxfp4",
}
"""Names of formats that are not read."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a file: its shape, its format by GGML's number, and the offset of its bytes."""

    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def format(self) -> str:
        """The name of the format, such as `q4_K`."""
        return FORMATS[self.kind].name if self.kind in FORMATS else _PLAIN[self.kind]

    @property
    def bytes(self) -> int:
        if self.kind in FORMATS:
            packing = FORMATS[self.kind]
            return prod(self.shape) // packing.elements * packing.bytes
        return prod(self.shape) * dtypes.BY_NAME[_PLAIN[self.kind]].numpy.itemsize


@dataclass(frozen=True)
class GgufFile:
    """A file's metadata and tensors; the tensors are memory-mapped when they are read."""

    path: Path
    metadata: Mapping[str, Any]
    """Numbers, strings, and lists of them; long lists are arrays."""
    tensors: Mapping[str, GgufTensor]
    mapped: Array = field(repr=False)

    def read(self, name: str) -> Array | Blocks:
        """A tensor; plain elements are views of the file. `KeyError` if it is absent."""
        tensor = self.tensors[name]
        data = self.mapped[tensor.offset : tensor.offset + tensor.bytes]
        if tensor.kind in FORMATS:
            return FORMATS[tensor.kind].decoded(data, tensor.shape)
        dtype = dtypes.BY_NAME[_PLAIN[tensor.kind]].numpy
        if not tensor.bytes:
            return np.empty(tensor.shape, dtype)
        return array_of_memory(data, dtype, tensor.shape)


def read_gguf(path: Path) -> GgufFile:
    """Opens a file; `Unreadable` if its header or any offset is wrong."""
    if size_of(path) < len(MAGIC):
        raise Unreadable("it is not a GGUF file")
    with reading():
        mapped = np.memmap(path, np.uint8, "r")
    if bytes(mapped[:4]) != MAGIC:
        raise Unreadable("it is not a GGUF file")
    with reading("its header is damaged"):
        cursor = _Cursor(mapped.data, len(MAGIC))
        version = int(cursor.number(_U32))
        if version not in VERSIONS:
            raise Unreadable(_version_message(version))
        tensor_count, value_count = (int(cursor.number(_U64)) for _ in range(2))
        metadata: dict[str, Any] = {}
        for _ in range(value_count):
            _add(metadata, cursor.string(), cursor.value(int(cursor.number(_U32))), "metadata")
        tensors: dict[str, GgufTensor] = {}
        for _ in range(tensor_count):
            name = cursor.string()
            _add(tensors, name, _tensor(cursor, name), "tensor")
        start = _aligned(cursor.at, metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
    placed = {
        name: GgufTensor(one.shape, one.kind, start + one.offset) for name, one in tensors.items()
    }
    for name, one in placed.items():
        if one.offset + one.bytes > len(mapped):
            raise Unreadable(f"tensor {name!r} ends after the file")
    return GgufFile(path, metadata, placed, mapped)


def _version_message(version: int) -> str:
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        return "it has the byte order of a big-endian machine"
    return f"it has version {version} of GGUF, and versions 2 and 3 are read"


def _add(found: dict[str, Any], name: str, value: object, kind: str) -> None:
    if name in found:
        raise Unreadable(f"it has two entries of {kind} {name!r}")
    found[name] = value


def _tensor(cursor: _Cursor, name: str) -> GgufTensor:
    """The tensor at the cursor; its offset counts from the end of the header."""
    axes = int(cursor.number(_U32))
    if axes > _MOST_AXES:
        raise Unreadable(f"tensor {name!r} has {axes} axes")
    shape = tuple(int(cursor.number(_U64)) for _ in range(axes))[::-1]
    kind, offset = int(cursor.number(_U32)), int(cursor.number(_U64))
    if kind not in FORMATS and kind not in _PLAIN:
        called = _UNREAD.get(kind, f"number {kind}")
        known = ", ".join([*_PLAIN.values(), *(one.name for one in FORMATS.values())])
        raise Unreadable(f"tensor {name!r} is in the format {called}, not in one of {known}")
    if kind in FORMATS and (not shape or shape[-1] % FORMATS[kind].elements):
        raise Unreadable(f"the rows of tensor {name!r} are no multiple of its blocks")
    return GgufTensor(shape, kind, offset)


def _aligned(offset: int, alignment: object) -> int:
    if not isinstance(alignment, int) or not 0 < alignment <= _LARGEST_ALIGNMENT:
        raise Unreadable(f"its alignment is {alignment!r}")
    return -(-offset // alignment) * alignment


class _Cursor:
    """Reads the header of a file from front to back."""

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self.at = data, at

    def take(self, count: int) -> memoryview:
        """The next bytes; `Unreadable` if the file ends before."""
        if count > len(self.data) - self.at:
            raise Unreadable("its header ends after the file")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, kind: int) -> Any:
        """The next number of a type of `_NUMBERS`."""
        dtype = _NUMBERS[kind]
        return np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()

    def string(self) -> str:
        return str(self.take(int(self.number(_U64))), "utf-8", "replace")

    def value(self, kind: int, *, nested: bool = False) -> Any:
        """The next value of a type: a number, a string, or a list."""
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY and not nested:
            kind, count = int(self.number(_U32)), int(self.number(_U64))
            if kind in _NUMBERS:
                dtype = _NUMBERS[kind]
                return np.frombuffer(self.take(count * dtype.itemsize), dtype)
            return [self.value(kind, nested=True) for _ in range(count)]
        if kind not in _NUMBERS:
            raise Unreadable(f"its metadata has the unknown type {kind}")
        return self.number(kind)
