"""Allocates aligned memory, in huge pages where it is large."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ctypes import addressof, c_char
from functools import partial
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from popgraph.support.arrays import Array, SharedArrays, owned
from popgraph.support.computed import Computed
from popgraph.support.forked import in_child
from popgraph.support.poison import fill_with_poison, is_poisoned
from popgraph.support.shapes import Shape

ALIGNMENT = 64

LARGE_PAGE = 2 << 20
"""From this size on, memory has large pages: small ones halve the speed of uncached reads."""

SMALL_PAGE = 4096

RESERVE_STEP = 16 << 20
"""Bytes that a thread provides at once, in 32 ms at most; another thread may continue then."""

MOST_RESERVED = 1 << 30
"""Limit of such bytes: a program may not pack all weights, and larger models answer late anyway."""

NO_PAGES = AttributeError, OSError, ValueError, OverflowError
"""Errors of systems without large pages, or without enough memory."""

WIPE_ON_FORK = 18
"""MADV_WIPEONFORK of Linux 4.14, which Python's `mmap` does not name."""


def aligned(size: int) -> Array:
    """New memory, aligned for vectors, and for large pages if it is large."""
    if size < LARGE_PAGE:
        return _at(ALIGNMENT, _anywhere(size + ALIGNMENT), size)
    return _at(LARGE_PAGE, _in_large_pages(size + LARGE_PAGE), size)


def zeros(size: int) -> Array:
    """New aligned memory of zeros; untouched pages of large memory take no space."""
    if size < LARGE_PAGE:
        raw = np.zeros(size + ALIGNMENT, np.uint8)
        return _front(ALIGNMENT, raw, size)
    return _front(LARGE_PAGE, _in_large_pages(size + LARGE_PAGE, np.zeros), size)


def together(sizes: Mapping[str, int], reserve: Reserve | None = None) -> dict[str, Array]:
    """Pieces of one allocation, by key, so that small pieces can share large pages."""
    starts = [0, *accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes.values())]
    memory = None if reserve is None else reserve.take(starts[-1])
    if memory is None:
        memory = aligned(starts[-1])
    pieces = zip(sizes.items(), starts[:-1], strict=True)
    return {key: memory[start : start + size] for (key, size), start in pieces}


def touched(made: dict[str, Array]) -> dict[str, Array]:
    """New memory after the system has provided its pages, which takes 2 ms a megabyte."""
    if not is_poisoned():
        for memory in made.values():
            memory[::SMALL_PAGE] = 0
    return made


class Reserve:
    """
    Memory whose pages threads provide before its size is known.

    That takes 2 ms a megabyte in a virtual machine: 0.7 s for the weights of ViT-B/16.
    """

    def __init__(self, expected: int) -> None:
        """Provides `expected` bytes, and can hold twice as many."""
        self._mapped = _mapped(2 * expected + LARGE_PAGE)
        self._memory = _front(LARGE_PAGE, np.frombuffer(self._mapped, np.uint8), 2 * expected)
        self._used = expected
        starts = range(0, expected, RESERVE_STEP)
        self._steps = [Computed(partial(self._touch, start)) for start in starts]

    def _touch(self, start: int) -> None:
        self._memory[start : min(start + RESERVE_STEP, self._used) : SMALL_PAGE] = 0

    def take(self, size: int) -> Array | None:
        """The first `size` bytes; None if it is smaller. The system gets the other pages back."""
        if size > len(self._memory):
            return None
        expected, self._used = self._used, min(self._used, size)
        for step in reversed(self._steps):  # Threads begin with the first one.
            step()
        first = -(-size // LARGE_PAGE) * LARGE_PAGE
        if first < expected:
            start = address(self._memory) - address(np.frombuffer(self._mapped, np.uint8)) + first
            self._mapped.madvise(mmap.MADV_DONTNEED, start, expected - first)
        return self._memory[:size]


_RESERVES = WeakKeyDictionary[SharedArrays, Reserve]()
"""Memory for a program that is being lowered, by the arrays of its model."""


@contextmanager
def reserving(shared: SharedArrays, expected: int) -> Iterator[None]:
    """
    Provides about `expected` bytes for the packed weights of a program that is lowered meanwhile.

    Only for the first program of a model, since others may share its packings.
    """
    is_first = shared.is_empty and shared not in _RESERVES and not in_child()
    if is_first and expected >= RESERVE_STEP and not is_poisoned():
        with suppress(*NO_PAGES):
            _RESERVES[shared] = Reserve(min(expected, MOST_RESERVED))
    try:
        yield
    finally:
        _RESERVES.pop(shared, None)


def reserved(shared: SharedArrays) -> Reserve | None:
    """The memory for the program that is built, once."""
    return _RESERVES.pop(shared, None)


def scratch(size: int) -> Array:
    """
    Aligned memory for the length of a run, which a forked child finds full of zeros.

    Otherwise, the parent would copy each page that it writes after a fork: 0.8 s for 400 MB.
    """
    if size < LARGE_PAGE:
        return aligned(size)
    return _at(LARGE_PAGE, _in_large_pages(size + LARGE_PAGE, wiped=True), size)


def fresh_array(shape: Shape, dtype: np.dtype[Any], size: int) -> tuple[Array, int]:
    """
    A new aligned array of `size` bytes, and its address; fast, for every run.

    Its memory may be recycled, with arbitrary content.
    """
    raw = _anywhere(size + ALIGNMENT)
    begins = address(raw)
    start = -begins % ALIGNMENT
    array: Array = np.ndarray(shape, dtype, raw, start)
    return array, begins + start


def _at(alignment: int, raw: Array, size: int) -> Array:
    memory = _front(alignment, raw, size)
    if is_poisoned():
        fill_with_poison(memory)
    return memory


def _front(alignment: int, raw: Array, size: int) -> Array:
    """`size` bytes of memory from the first aligned address on."""
    start = -address(raw) % alignment
    return raw[start : start + size]


def address(array: Array) -> int:
    """The address of an array's elements, in a quarter of the time of `array.ctypes`."""
    try:
        return addressof(c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # read-only, or an element type of ml_dtypes
        return int(array.__array_interface__["data"][0])


def _anywhere(size: int) -> Array:
    return np.empty(size, np.uint8)


def _in_large_pages(
    size: int,
    otherwise: Callable[[int, type[np.uint8]], Array] = np.empty,
    *,
    wiped: bool = False,
) -> Array:
    """Newly mapped memory of zeros: recycled pages would stay small."""
    try:
        mapped = _mapped(size)
        if wiped:
            with suppress(OSError):
                mapped.madvise(WIPE_ON_FORK)
    except NO_PAGES:
        return otherwise(size, np.uint8)
    return np.frombuffer(mapped, np.uint8)


def _mapped(size: int) -> mmap.mmap:
    """Memory of zeros in large pages; an error of `NO_PAGES` if the system has none."""
    mapped = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def to_huge_pages(array: Array) -> Array:
    """A large array copied to large pages; a small one copied only if a file backs it."""
    if array.nbytes < LARGE_PAGE:
        return owned(array)
    copy = aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy
