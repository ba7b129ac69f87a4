"""The weight store: elements of large tensors, owned by one compilation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

import numpy as np

from popgraph.dialects import element_types
from popgraph.dialects.program.attributes import BlobAttr, BytesAttr, DataAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import dtypes
from popgraph.support.arrays import Array, ArrayStore, SharedArrays
from popgraph.support.computed import Computed
from popgraph.support.shapes import prod

INLINE_BYTES = 1024
"""Bytes of tensors that are stored in the IR itself, where each byte prints as 2 hex digits."""

LATER_BYTES = 1 << 18
"""Bytes from which a thread computes an array. 64 Ki normal numbers take 1.4 ms."""


HASHED_BYTES = 1 << 20
"""Bytes that a thread hashes at once, in 0.6 ms."""


def _digest(data: memoryview) -> hashlib._Hash:
    """A hash of data, or of the hashes of its parts, which threads compute."""
    if len(data) <= HASHED_BYTES:
        return hashlib.sha256(data)
    starts = range(0, len(data), HASHED_BYTES)
    parts = [Computed(partial(_hash, data[start : start + HASHED_BYTES])) for start in starts]
    hashes = [part() for part in reversed(parts)]  # Threads begin with the first one.
    return hashlib.sha256(b"".join(hashes))


def _hash(data: memoryview) -> bytes:
    return hashlib.sha256(data).digest()


class WeightStore(ArrayStore):
    """The elements of blob literals, by a hash of their content or origin."""

    def __init__(
        self, parent: ArrayStore | None = None, shared: SharedArrays | None = None
    ) -> None:
        super().__init__(parent, shared)
        self.bytes: int = parent.bytes if isinstance(parent, WeightStore) else 0
        """The bytes of all arrays, loaded or not."""

    def attribute(self, array: Array) -> DataAttr | BlobAttr:
        """The literal of an array: inline when small, else stored here by content hash."""
        if array.nbytes <= INLINE_BYTES:
            return DataAttr.of(array)
        return self.keep(array)

    def keep(self, array: Array) -> BlobAttr:
        """Stores an array under its content hash."""
        array = np.asarray(array, order="C")  # `ascontiguousarray` makes vectors of scalars.
        digest = _digest(array.reshape(-1).view(np.uint8).data)
        # Equal bytes of another type or shape are another array.
        digest.update(str((array.dtype, array.shape)).encode())
        return self.defer(digest.hexdigest(), array.shape, array.dtype, array)

    def defer(
        self,
        key: str,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        source: Array | Callable[[], Array],
    ) -> BlobAttr:
        """Registers an array, or a callable that loads it on first use, such as a mapped file."""
        if key not in self:
            self.hold(key, source)
            self.bytes += prod(shape) * dtype.itemsize
        return self.reference(key, shape, dtype)

    def later(
        self,
        origin: str,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        make: Callable[[], Array],
    ) -> DataAttr | BlobAttr:
        """
        The literal of an array that is computed while passes run.

        Arrays with equal types and an equal `origin` have equal elements.
        """
        if prod(shape) * dtype.itemsize < LATER_BYTES:
            return self.attribute(make())
        key = hashlib.sha256(f"{origin} {shape} {dtype}".encode()).hexdigest()
        if key in self:
            return self.reference(key, shape, dtype)
        return self.defer(key, shape, dtype, Computed(make))

    @staticmethod
    def reference(key: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> BlobAttr:
        """The literal of an array whose key is known."""
        return BlobAttr(
            BytesAttr.of(key), tensor_type(element_types.to_ir(dtypes.from_numpy(dtype)), shape)
        )

    def array(self, attribute: DataAttr | BlobAttr) -> Array:
        """The elements of a literal; read-only by convention."""
        if isinstance(attribute, DataAttr):
            return attribute.array
        return self.held(attribute.key.text, attribute.type)
