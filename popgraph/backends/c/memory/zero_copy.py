"""Zero-copy inputs and outputs: large arrays are used where the caller has them."""

from __future__ import annotations

from ctypes import Array as CArray
from ctypes import c_void_p

from popgraph.backends.c.memory.pages import address, fresh
from popgraph.support.arrays import Array

LARGE = 1 << 17
"""Bytes from which on it takes longer to copy an array than to say where it is."""

Pointers = CArray[c_void_p]
"""The table that a program is called with."""


class ReadInPlace:
    """Stands for an input's memory: to assign to it is to point to the caller's array."""

    def __init__(self, own: Array, pointers: Pointers, number: int) -> None:
        self.dtype, self.shape = own.dtype, own.shape
        self._own, self._pointers, self._number = own, pointers, number

    def __setitem__(self, _: object, array: Array) -> None:
        if not (array.flags.c_contiguous and array.flags.aligned):
            self._own[...] = array
            array = self._own
        self._pointers[self._number] = address(array)
        self._held = array  # Until the run has ended.


class MadeInPlace:
    """Stands for an output's memory: the next run gets other memory when somebody has a copy."""

    def __init__(self, own: Array, pointers: Pointers, number: int) -> None:
        self._next, self._pointers, self._number = own, pointers, number

    def copy(self) -> Array:
        made = self._next
        self._next = fresh(made.nbytes).view(made.dtype).reshape(made.shape)
        self._pointers[self._number] = address(self._next)
        return made
