"""Stop tokens and stop sequences: where a text ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from popgraph.support.errors import RunError


@dataclass(frozen=True)
class Stops:
    """Sequences of tokens after which a text ends; they are its last tokens."""

    sequences: tuple[tuple[int, ...], ...] = ()

    @staticmethod
    def of(stop: Any) -> Stops:
        """A token, or a list whose items are tokens and sequences of tokens."""
        items = stop if isinstance(stop, Sequence | np.ndarray) else [] if stop is None else [stop]
        arrays = [np.asarray(item) for item in items]
        for item, array in zip(items, arrays, strict=True):
            if array.dtype.kind not in "iu" or not array.size or array.ndim > 1:
                raise RunError(
                    f"{item!r} is neither a token nor a sequence of tokens",
                    "stop",
                    "stop=2, or a list such as stop=[2, [13, 13]]",
                )
        return Stops(tuple(tuple(map(int, array.reshape(-1))) for array in arrays))

    def has_ended(self, tokens: Sequence[int]) -> bool:
        """Whether new tokens end with one of the sequences."""
        return any(tuple(tokens[-len(one) :]) == one for one in self.sequences)
