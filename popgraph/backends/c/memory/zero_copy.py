"""Zero-copy inputs and outputs: large arrays are used in the caller's memory."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import Array as CArray
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from popgraph.backends.c.memory.pages import address, fresh_array
from popgraph.support.arrays import Array
from popgraph.support.poison import fill_with_poison, is_poisoned
from popgraph.support.shapes import Shape

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


class DonatedMemory:
    """Replaces the memory of a donated input and of its output: nothing is copied."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __setitem__(self, _: object, array: Array) -> None:
        """Does nothing: the program reads the caller's array."""

    def copy(self) -> Array:
        return self._array


Memory: TypeAlias = Array | ReadInPlace | DonatedMemory
"""The memory of an input, which a run assigns."""


@dataclass(frozen=True)
class Ports:
    """The memory of the inputs and outputs of a run, in the form that a call reads fastest."""

    inputs: tuple[tuple[str, np.dtype[Any], Shape, Memory], ...]
    """With the type and the shape, which NumPy would create anew for each comparison."""
    outputs: tuple[tuple[str, Array | MadeInPlace | DonatedMemory], ...]
    made: tuple[MadeInPlace, ...]
    """The zero-copy outputs."""

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Array],
        read: Mapping[str, ReadInPlace],
        outputs: Mapping[str, Array],
        made: Mapping[str, MadeInPlace],
    ) -> Ports:
        """Ports of arrays by name; `read` and `made` replace some of them."""
        return cls(
            tuple(
                (name, one.dtype, one.shape, read.get(name, one)) for name, one in inputs.items()
            ),
            tuple((name, made.get(name, one)) for name, one in outputs.items()),
            tuple(made.values()),
        )

    def in_memory_of(self, taken: Mapping[str, Array], donations: Mapping[str, str]) -> Ports:
        """The ports of a run in which outputs overwrite the inputs `taken`; see `donations`."""
        own = {name: DonatedMemory(array) for name, array in taken.items()}
        written = {donations[name]: memory for name, memory in own.items()}
        outputs = tuple((name, written.get(name, memory)) for name, memory in self.outputs)
        return Ports(
            tuple((*one[:3], own.get(one[0], one[3])) for one in self.inputs),
            outputs,
            tuple(one for _, one in outputs if isinstance(one, MadeInPlace)),
        )
