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
"""The treatment of an out-of-range index: clamp it (or end the run), or raise."""


@dataclass(frozen=True)
class IndexCheck:
    """
    The bounds of an operator's indices, and the program output that reports violations.

    For each bound, the output holds the maximum of `index - low` as an unsigned number, where
    indices below `low` wrap to large values.
    """

    output: str
    what: str
    """The kind of index, such as a label."""
    place: str
    """The operator, in the user's words."""
    low: tuple[int, ...]
    last: tuple[int, ...]

    def error(self, found: Array) -> IndicesError | None:
        """The error for the indices of a run; None if all are in range."""
        if not found.ndim and found.item() <= self.last[0] - self.low[0]:
            return None  # The usual case, in a third of the time.
        for largest, low, last in zip(found.reshape(-1).tolist(), self.low, self.last, strict=True):
            if largest > last - low:
                index = as_signed(largest + low, found.dtype)
                return IndicesError(
                    f"{self.what} {index} is out of range: {low} to {last} are legal",
                    self.place,
                    f"correct the data, or compile with indices={NEAREST!r} to clamp indices",
                )
        return None


def as_signed(number: int, dtype: np.dtype[Any]) -> int:
    """The value of an unsigned number as a signed one of the same width."""
    half = 1 << (8 * dtype.itemsize - 1)
    return (number + half) % (2 * half) - half


def raise_errors(checks: Iterable[tuple[IndexCheck, Array]]) -> None:
    """Raises IndicesError for the first check that failed."""
    for check, found in checks:
        error = check.error(found)
        if error is not None:
            raise error
