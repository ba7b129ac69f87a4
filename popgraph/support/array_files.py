"""Reads NumPy's .npy and .npz files."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.reading import Unreadable, reading, size_of

Check: TypeAlias = Callable[[np.dtype[Any], tuple[int, ...]], None]
"""Raises unless an array has the expected element type and shape."""

_START = 12
"""Bytes before the text of the longest kind of header: magic, version and length."""
_MAX_HEADER = 10_000
"""NumPy rejects longer headers, but only after reading them: one of version 2 may have 4 GiB."""


def read_npy(path: Path, *, mapped: bool = False) -> Array:
    """The array of an .npy file."""
    if not size_of(path):
        raise Unreadable("the file is empty")
    with reading("it is not an .npy file, or it holds Python objects"):
        # Mapped first, so a header that promises more than the file holds allocates nothing.
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray):
        found.close()
        raise Unreadable("it is an .npz file, not an .npy file")
    with reading():
        return found if mapped else np.array(found)


def read_npz(path: Path, key: str, check: Check | None = None) -> Array:
    """
    The array of a key in an .npz file; `KeyError` if it is absent.

    Compression shrinks zeros a thousandfold, so `check` sees the header before any element is
    decompressed.
    """
    size_of(path)
    with reading("it is not an .npz file, or it is damaged"):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise Unreadable("it is not an .npz file")
    with archive:
        if key not in archive.files:
            raise KeyError(key)
        damaged = f"the array {key!r} in it is damaged"
        with reading(damaged):
            names = archive.zip.namelist()
            member = archive.zip.getinfo(key if key in names else f"{key}.npy")
            with archive.zip.open(member) as file:
                dtype, shape, start = _header(file, damaged)
            if start + prod(shape) * dtype.itemsize != member.file_size:
                raise Unreadable(f"{key!r} in it has the wrong number of bytes")
        if check is not None:
            check(dtype, shape)
        with reading(damaged):
            found = archive[key]
            assert isinstance(found, np.ndarray), "it has the header of an array"
            return found


def names_of_npz(path: Path) -> list[str]:
    """The keys of an .npz file."""
    size_of(path)
    with reading("it is not an .npz file, or it is damaged"):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise Unreadable("it is not an .npz file")
        with archive:
            return list(archive.files)


def _header(file: IO[bytes], otherwise: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """The element type, shape and data offset of an .npy stream."""
    start = file.read(_START)
    version = np.lib.format.read_magic(BytesIO(start))
    if version == (1, 0):
        width, read = 2, np.lib.format.read_array_header_1_0
    elif version == (2, 0):
        width, read = 4, np.lib.format.read_array_header_2_0
    else:
        raise Unreadable(otherwise)  # Version 3.0 is only for non-ASCII field names of records.
    first = np.lib.format.MAGIC_LEN
    length = int.from_bytes(start[first : first + width], "little")
    if length > _MAX_HEADER:
        raise Unreadable(otherwise)
    end = first + width + length
    stream = BytesIO(start + file.read(max(0, end - _START)))
    stream.seek(first)
    shape, _, dtype = read(stream)
    return dtype, shape, end
