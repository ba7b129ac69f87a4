"""What stands in memory that nobody has written: whatever was there, or a poison that shows."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from popgraph.support.arrays import Array

SWITCH = "POPGRAPH_POISON"
POISON = 0xFF
"""
The byte of it: NaN in every float type that has one of all ones, -1 in integers.

Only the 8-bit types without a sign of zero have none: it is their largest negative number.
"""


def is_poisoned() -> bool:
    """Whether compiled programs are to find poison in memory that they have not written."""
    return os.environ.get(SWITCH, "") not in ("", "0")


def fill_with_poison(memory: Array) -> None:
    """Forgets what stands in contiguous memory, of whatever type."""
    memory.reshape(-1).view(np.uint8).fill(POISON)


def unwritten(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """Memory for an array; poisoned if that is asked for."""
    made = np.empty(tuple(shape), dtype)
    if is_poisoned():
        fill_with_poison(made)
    return made
