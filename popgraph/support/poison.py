"""Uninitialized memory, filled with a recognizable pattern if requested."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from popgraph.support.arrays import Array

SWITCH = "POPGRAPH_POISON"
POISON = 0xFF
"""
The fill byte: NaN in every float type with an all-ones NaN, -1 in integers.

The 8-bit types without negative zero have no such NaN: it is their largest negative number.
"""


def is_poisoned() -> bool:
    """Whether uninitialized memory of compiled programs is poisoned."""
    return os.environ.get(SWITCH, "") not in ("", "0")


def fill_with_poison(memory: Array) -> None:
    """Overwrites contiguous memory of any type with poison."""
    memory.reshape(-1).view(np.uint8).fill(POISON)


def unwritten(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """An uninitialized array, poisoned if requested."""
    made = np.empty(tuple(shape), dtype)
    if is_poisoned():
        fill_with_poison(made)
    return made
