"""Which arrays do files beside a text hold, and how are large weights written into one?"""

from __future__ import annotations

import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from popgraph.support import dtypes
from popgraph.support.arrays import Array

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
"""What the safetensors format calls our element types; others are kept as their bytes."""
_OURS = {theirs: ours for ours, theirs in _NAMES.items()}
_BYTES = "U8"
_HEAD = struct.Struct("<Q")
_MOST_HEADER = 100_000_000
_ALIGNMENT = 64


class Unreadable(Exception):
    """What is wrong with a file."""


DAMAGED = (
    *(OSError, ValueError, TypeError, EOFError, MemoryError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError, struct.error),
)
"""What NumPy and the modules below it raise at files that are damaged, or none of theirs."""


@contextmanager
def _readable() -> Iterator[None]:
    """Whatever a file does to its reader, it is unreadable; a key that is not there is not."""
    try:
        yield
    except DAMAGED as error:
        what = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unreadable(what) from error


def read_key(path: Path, key: str) -> Array:
    """The array of that key in a .safetensors or .npz file; `KeyError` if there is none."""
    return _from_safetensors(path, key) if path.suffix == ".safetensors" else _from_npz(path, key)


def read_only(path: Path) -> Array:
    """The array of an .npy file."""
    with _readable():
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray):
        found.close()
        raise Unreadable("it is no .npy file")
    return found


def read_part(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Array:
    """The elements that stand in a file from a place on, as ONNX keeps external data."""
    with _readable():
        size = path.stat().st_size
        if not path.is_file():
            raise IsADirectoryError("it is no file")
    wanted = prod(shape) * dtype.itemsize
    if not 0 <= offset <= size - wanted:
        raise Unreadable(f"it has {size} bytes, not {wanted} from {offset} on")
    return _mapped(path, dtype, shape, offset)


def _mapped(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Array:
    count = prod(shape) * dtype.itemsize
    if not count:
        return np.empty(shape, dtype)
    return np.memmap(path, np.uint8, "r", offset, (count,)).view(dtype).reshape(shape)


def _from_npz(path: Path, key: str) -> Array:
    with _readable(), np.load(path, allow_pickle=False) as archive:
        if isinstance(archive, np.ndarray):
            raise Unreadable("it is no .npz file")
        found: Array = archive[key]
        return found


def _from_safetensors(path: Path, key: str) -> Array:
    header, start = _header(path)
    entry = header[key]
    try:
        name, shape = entry["dtype"], tuple(int(size) for size in entry["shape"])
        first, last = entry["data_offsets"]
        dtype = dtypes.BY_NAME[_OURS[name]].numpy
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"what it says about {key!r} cannot be understood") from error
    if min(shape, default=0) < 0 or first < 0 or last - first != prod(shape) * dtype.itemsize:
        raise Unreadable(f"{key!r} has the wrong number of bytes")
    return read_part(path, dtype, shape, start + first)


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """What stands in a file, and where its arrays begin."""
    try:
        with path.open("rb") as file:
            (size,) = _HEAD.unpack(file.read(_HEAD.size))
            if size > _MOST_HEADER:
                raise Unreadable("it is no .safetensors file")
            header = json.loads(file.read(size))
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    except (struct.error, ValueError, RecursionError) as error:
        raise Unreadable("it is no .safetensors file") from error
    if not isinstance(header, dict):
        raise Unreadable("it is no .safetensors file")
    return {key: value for key, value in header.items() if key != "__metadata__"}, _HEAD.size + size


def write_safetensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """
    Writes all arrays into one file; the larger elements first, so that all are aligned.

    The file takes its place when it is whole: the arrays may be parts of the one that stood there.
    """
    order = sorted(arrays, key=lambda key: -arrays[key].dtype.itemsize)
    header: dict[str, Any] = {}
    place = 0
    for key in order:
        array = arrays[key]
        name = _NAMES.get(dtypes.from_numpy(array.dtype).name)
        shape = array.shape if name else (*array.shape, array.itemsize)
        header[key] = {
            "dtype": name or _BYTES,
            "shape": shape,
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_HEAD.size + len(text)) % _ALIGNMENT)
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(_HEAD.pack(len(text)) + text)
        for key in order:
            file.writelines(_pieces(arrays[key]))
    part.replace(path)


def _pieces(array: Array) -> Iterator[bytes | memoryview]:
    yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def as_type(array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array | None:
    """
    The array as one of this type and shape; None if it is no such array.

    Element types for which a file has no name stand there as bytes, along a last axis, or in
    .npz as nameless elements of that size.
    """
    if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        array = array.view(dtype)
    elif array.dtype == np.uint8 != dtype and array.shape == (*shape, dtype.itemsize):
        array = np.ascontiguousarray(array).view(dtype).reshape(shape)
    return array if array.dtype == dtype and array.shape == shape else None
