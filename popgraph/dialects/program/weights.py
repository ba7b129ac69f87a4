"""Where do the elements of large tensors live? In a store that belongs to one compilation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path

import numpy as np

from popgraph.dialects.program.attributes import Array, BlobAttr, BytesAttr, DataAttr
from popgraph.dialects.program.shared import tensor_type
from popgraph.support import dtypes
from popgraph.support.errors import ModelError
from popgraph.support.files import State

INLINE_BYTES = 1024
"""Tensors up to this size stand in the IR itself."""


class WeightStore:
    """Arrays by content key; a value may be a function that loads the array when it is needed."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array | Callable[[], Array]] = {}
        self.files: dict[Path, State] = {}
        """The files that a model came from, as they were before anything was read."""

    def attribute(self, array: Array) -> DataAttr | BlobAttr:
        """The attribute that stands for `array`: inline when small, else kept here by content."""
        if array.nbytes <= INLINE_BYTES:
            return DataAttr.of(array)
        return self.keep(array)

    def keep(self, array: Array) -> BlobAttr:
        """The attribute of an array that is kept here, by content."""
        array = np.ascontiguousarray(array)
        digest = hashlib.sha256(array.view(np.uint8).data if array.ndim else array.tobytes())
        digest.update(str((array.dtype, array.shape)).encode())
        return self.defer(digest.hexdigest(), array.shape, array.dtype, array)

    def defer(
        self,
        key: str,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        source: Array | Callable[[], Array],
    ) -> BlobAttr:
        """The attribute of an array that `source` is, or brings when asked (a file's mapping)."""
        self._arrays.setdefault(key, source)
        return self.reference(key, shape, dtype)

    @staticmethod
    def reference(key: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> BlobAttr:
        """The attribute of an array whose key is known."""
        return BlobAttr(BytesAttr.of(key), tensor_type(dtypes.from_numpy(dtype).ir, shape))

    def array(self, attribute: DataAttr | BlobAttr) -> Array:
        """The elements; read-only by convention."""
        if isinstance(attribute, DataAttr):
            return attribute.array
        key = attribute.key.text
        found = self._arrays.get(key)
        if found is None:
            raise ModelError(
                f"the weights of {attribute.type} are not at hand",
                f"blob {key[:12]}",
                "large tensors are not part of IR text; give the model they came from",
            )
        if callable(found):
            found = self._arrays[key] = found()
        return found

    def own(self) -> None:
        """Copies what is a part of a model's file: whoever writes to it would change it."""
        for key, found in self._arrays.items():
            self._arrays[key] = owned(found() if callable(found) else found)

    def __contains__(self, key: str) -> bool:
        return key in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)


def owned(array: Array) -> Array:
    """The array, copied if it is a part of a file."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return array.copy() if isinstance(base, mmap) else array
