"""Little-endian bytes of arrays, as in files on any host."""

from __future__ import annotations

import io
import sys

import numpy as np

from popgraph.support.arrays import Array

HOST = sys.byteorder


def memory_of(array: Array) -> memoryview:
    """The elements in row-major order, as in ONNX, safetensors and emitted files."""
    return _ordered(np.ascontiguousarray(array)).reshape(-1).view(np.uint8).data


def array_of_memory(
    memory: memoryview | bytes | Array, dtype: np.dtype[np.generic], shape: tuple[int, ...]
) -> Array:
    """The array stored in `memory`; a view of it on a little-endian host."""
    held = memory if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)
    return _ordered(held.view(dtype)).reshape(shape)


def _ordered(array: Array) -> Array:
    """Swaps bytes between the host's order and little-endian."""
    size = array.itemsize // (2 if array.dtype.kind == "c" else 1)
    if HOST == "little" or size == 1:
        return array
    return array.view(f"u{size}").byteswap().view(array.dtype)


def npy(array: Array) -> list[memoryview]:
    """The content of an .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return [file.getbuffer()]
