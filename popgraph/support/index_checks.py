"""Index checks: bounds of indices in data, and the error for those out of range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import IndicesError

NEAREST, ERROR = "nearest", "error"
CHOICES = (NEAREST, ERROR)
"""What an index outside means: the nearest one inside, or an end of the run."""


@dataclass(frozen=True)
class IndexCheck:
    """
    The bounds of the indices that an operator gets, and the output of the program that tells.

    That output holds, for each of the bounds, the largest of `index - low` as an unsigned number:
    those below `low` are larger than all others.
    """

    output: str
    what: str
    """What an index is called: a label, say."""
    place: str
    """The operator, in the user's words."""
    low: tuple[int, ...]
    last: tuple[int, ...]

    def error(self, found: Array) -> IndicesError | None:
        """What is wrong with the indices of a run; None if nothing is."""
        if not found.ndim and found.item() <= self.last[0] - self.low[0]:
            return None  # The usual case, in a third of the time.
        for largest, low, last in zip(found.reshape(-1).tolist(), self.low, self.last, strict=True):
            if largest > last - low:
                index = as_signed(largest + low, found.dtype)
                return IndicesError(
                    f"{self.what} {index} is out of range: {low} to {last} are legal",
                    self.place,
                    f"mend the data, or compile with indices={NEAREST!r}, which takes the nearest",
                )
        return None


def as_signed(number: int, dtype: np.dtype[Any]) -> int:
    """A whole number as the signed type of that size has it."""
    half = 1 << (8 * dtype.itemsize - 1)
    return (number + half) % (2 * half) - half


def raise_errors(checks: Iterable[tuple[IndexCheck, Array]]) -> None:
    """IndicesError for the first check that a run did not pass."""
    for check, found in checks:
        error = check.error(found)
        if error is not None:
            raise error
