"""Reads and writes array files: safetensors, and byte ranges of raw files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from popgraph.support import dtypes
from popgraph.support.array_bytes import array_of_memory, memory_of
from popgraph.support.array_files import Check, read_npz
from popgraph.support.arrays import Array
from popgraph.support.reading import Unreadable, read_range, reading, size_of

_NAMES = {
    "f64": "F64",
    "f32": "F32",
    "f16": "F16",
    "bf16": "BF16",
    "i64": "I64",
    "i32": "I32",
    "i16": "I16",
    "i8": "I8",
    "u64": "U64",
    "u32": "U32",
    "u16": "U16",
    "u8": "U8",
    "bool": "BOOL",
    "f8e4m3fn": "F8_E4M3",
    "f8e5m2": "F8_E5M2",
    "c64": "C64",
}
"""{element type: name in safetensors}; other types are stored as bytes."""
_OURS = {theirs: ours for ours, theirs in _NAMES.items()}
_BYTES = "U8"
_HEAD = struct.Struct("<Q")
_METADATA = "__metadata__"
_MOST_HEADER = 100_000_000
_ALIGNMENT = 64


def read_key(path: Path, key: str, check: Check | None = None) -> Array:
    """
    The array of a key in a .safetensors or .npz file; `KeyError` if it is absent.

    `check` sees its type before decompression; a .safetensors file is memory-mapped.
    """
    if path.suffix == ".safetensors":
        return _from_safetensors(path, key)
    return read_npz(path, key, check)


def read_part(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Array:
    """Reads elements at an offset of a file, such as ONNX external data."""
    size = size_of(path)
    wanted = prod(shape) * dtype.itemsize
    if not 0 <= offset <= size - wanted:
        raise Unreadable(f"it has {size} bytes, not {wanted} from {offset} on")
    with reading():
        return _mapped(path, dtype, shape, offset)


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Array:
    count = prod(shape) * dtype.itemsize
    if not count:
        return np.empty(shape, dtype)
    return array_of_memory(np.memmap(path, np.uint8, "r", offset, (count,)), dtype, shape)


def _from_safetensors(path: Path, key: str) -> Array:
    return entries(path)[0][key]()


def entries(path: Path) -> tuple[dict[str, Callable[[], Array]], dict[str, Any]]:
    """The arrays of a .safetensors file, each mapped when it is called, and the metadata."""
    header, start = _header(path)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict):
        raise Unreadable("it is not a .safetensors file")
    return {key: partial(_entry, path, key, one, start) for key, one in header.items()}, metadata


def _entry(path: Path, key: str, entry: Any, start: int) -> Array:
    with reading(f"the entry of {key!r} is malformed"):
        name, shape = entry["dtype"], tuple(map(index, entry["shape"]))
        first, last = map(index, entry["data_offsets"])
        dtype = dtypes.BY_NAME[_OURS[name]].numpy
    if min(shape, default=0) < 0 or first < 0 or last - first != prod(shape) * dtype.itemsize:
        raise Unreadable(f"{key!r} has the wrong number of bytes")
    return read_part(path, dtype, shape, start + first)


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a file, and the offset of its arrays."""
    (size,) = _HEAD.unpack(read_range(path, 0, _HEAD.size))
    if size > min(_MOST_HEADER, size_of(path)):
        raise Unreadable("it is not a .safetensors file")
    with reading("it is not a .safetensors file"):
        header = json.loads(read_range(path, _HEAD.size, size), object_pairs_hook=_once)
    if not isinstance(header, dict):
        raise Unreadable("it is not a .safetensors file")
    return header, _HEAD.size + size


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of a JSON text, in which no name may occur twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Unreadable("a name occurs twice in its header")
    return found


def read_all(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """All arrays of a .safetensors file, and its metadata."""
    found, metadata = entries(path)
    arrays = {key: read() for key, read in found.items()}
    return arrays, {str(name): str(text) for name, text in metadata.items()}


def safetensors(
    arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """
    The content of a file with arrays and metadata, in chunks.

    Arrays are in order of decreasing element size, so all are aligned.
    """
    order = sorted(arrays, key=lambda key: -arrays[key].dtype.itemsize)
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    start = 0
    for key in order:
        array = arrays[key]
        name = _NAMES.get(dtypes.from_numpy(array.dtype).name)
        shape = array.shape if name else (*array.shape, array.itemsize)
        header[key] = {
            "dtype": name or _BYTES,
            "shape": shape,
            "data_offsets": [start, start + array.nbytes],
        }
        start += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_HEAD.size + len(text)) % _ALIGNMENT)
    yield _HEAD.pack(len(text)) + text
    for key in order:
        yield memory_of(arrays[key])


def as_type(array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array | None:
    """
    The array as this type and shape; None if it does not match.

    Types without a name in the format are stored as bytes along an extra last axis, or in .npz as
    void elements of the same size.
    """
    if not is_type(array.dtype, array.shape, dtype, shape):
        return None
    if array.dtype == dtype:
        return array
    return np.ascontiguousarray(array).view(dtype).reshape(shape)


def is_type(
    found: np.dtype[Any], held: tuple[int, ...], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> bool:
    """Whether `as_type` accepts an array with element type `found` and shape `held`."""
    if found == np.uint8 != dtype:
        return held == (*shape, dtype.itemsize)
    is_nameless = found.kind == "V" and found.itemsize == dtype.itemsize
    return (found == dtype or is_nameless) and held == shape
