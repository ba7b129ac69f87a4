"""Allocates aligned memory, in huge pages where it is large."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from ctypes import addressof, c_char
from itertools import accumulate
from typing import Any

import numpy as np

from popgraph.support.arrays import Array, owned
from popgraph.support.poison import fill_with_poison, is_poisoned
from popgraph.support.shapes import Shape

ALIGNMENT = 64

LARGE_PAGE = 2 << 20
"""Through small pages, one core reads half as fast what no cache holds."""


def aligned(size: int) -> Array:
    """Memory that is new, at an address that vectors and large pages like."""
    if size < LARGE_PAGE:
        return _at(ALIGNMENT, _anywhere(size + ALIGNMENT), size)
    return _at(LARGE_PAGE, _in_large_pages(size + LARGE_PAGE), size)


def zeros(size: int) -> Array:
    """The same, but all zero: where it is large, pages that nobody touches take no memory."""
    if size < LARGE_PAGE:
        raw = np.zeros(size + ALIGNMENT, np.uint8)
        return _front(ALIGNMENT, raw, size)
    return _front(LARGE_PAGE, _in_large_pages(size + LARGE_PAGE, np.zeros), size)


def together(sizes: Mapping[str, int]) -> dict[str, Array]:
    """Pieces of one new memory, by their keys: where each is small, large pages hold them all."""
    starts = [0, *accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes.values())]
    memory = aligned(starts[-1])
    pieces = zip(sizes.items(), starts[:-1], strict=True)
    return {key: memory[start : start + size] for (key, size), start in pieces}


def fresh_array(shape: Shape, dtype: np.dtype[Any], size: int) -> tuple[Array, int]:
    """
    An array of so many bytes at an address that vectors like, and this address, in little time.

    Its pages may have served others before, and hold what they held.
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
    """So much of some memory, from the first address on that is aligned."""
    start = -address(raw) % alignment
    return raw[start : start + size]


def address(array: Array) -> int:
    """Where the elements begin, told in a quarter of the time that `array.ctypes` takes."""
    try:
        return addressof(c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # nobody may write it, or its type is not one of NumPy's own
        return int(array.__array_interface__["data"][0])


def _anywhere(size: int) -> Array:
    return np.empty(size, np.uint8)


def _in_large_pages(
    size: int, otherwise: Callable[[int, type[np.uint8]], Array] = np.empty
) -> Array:
    """Memory of its own, all zero: pages that served others before would stay small."""
    try:
        mapped = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        mapped.madvise(mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError, ValueError, OverflowError):
        return otherwise(size, np.uint8)  # no large pages here, or not so much memory
    return np.frombuffer(mapped, np.uint8)


def to_huge_pages(array: Array) -> Array:
    """The same elements, where programs read them fast and nobody writes a file below them."""
    if array.nbytes < LARGE_PAGE:
        return owned(array)
    copy = aligned(array.nbytes).view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy
