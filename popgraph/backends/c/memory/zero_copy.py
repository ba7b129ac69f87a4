"""Zero-copy inputs and outputs: large arrays are used in the caller's memory."""

from __future__ import annotations

from ctypes import Array as CArray
from ctypes import c_void_p

from popgraph.backends.c.memory.pages import address, fresh_array
from popgraph.support.arrays import Array
from popgraph.support.poison import fill_with_poison, is_poisoned

LARGE = 1 << 17
"""Bytes from which on copying an array takes longer than passing its address."""

Pointers = CArray[c_void_p]
"""The table that a program is called with."""


class ReadInPlace:
    """Replaces an input's memory: assignment sets the pointer to the caller's array."""

    def __init__(self, own: Array, pointers: Pointers, number: int) -> None:
        self.dtype, self.shape = own.dtype, own.shape
        self._own, self._pointers, self._number = own, pointers, number

    def __setitem__(self, _: object, array: Array) -> None:
        if not (array.flags.c_contiguous and array.flags.aligned):
            self._own[...] = array
            array = self._own
        self._pointers[self._number] = address(array)
        self._held: Array | None = array  # Keeps the array alive during the run.

    def release(self) -> None:
        """Drops the reference to the last run's array."""
        self._held = None


class MadeInPlace:
    """
    Replaces an output's memory: each run writes to memory that no caller holds.

    It is allocated when the run begins. If the caller has dropped the last result, the allocator
    can recycle its memory, which is still in the processor's caches.
    """

    def __init__(self, own: Array, pointers: Pointers, number: int) -> None:
        self._dtype, self._shape, self._bytes = own.dtype, own.shape, own.nbytes
        self._pointers, self._number = pointers, number
        self._next: Array | None = own
        self._poisoned = is_poisoned()

    def allocate(self) -> None:
        if self._next is None:
            self._next, where = fresh_array(self._shape, self._dtype, self._bytes)
            self._pointers[self._number] = where
            if self._poisoned:
                fill_with_poison(self._next)

    def copy(self) -> Array:
        made, self._next = self._next, None
        assert made is not None, "a run has made it"
        return made

    def release(self) -> None:
        """Drops memory that no run has filled, so that the next run allocates."""
        self._next = None
