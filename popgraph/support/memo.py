"""Memoization of functions of objects that never change, as attributes of IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")

MOST = 1 << 12
"""Maximum number of cached objects per function."""


def by_identity(function: Callable[[Given], Found]) -> Callable[[Given], Found]:
    """
    Caches a function by object identity.

    A cache by equality would hash the object at each call: ten Python calls for a vector type, more
    than the function itself. Most attributes recur as the same object.
    """
    known: dict[int, tuple[Found, Given]] = {}

    def remembering(given: Given) -> Found:
        met = known.get(id(given))
        if met is None:
            if len(known) >= MOST:
                known.clear()
            # A cached object is kept alive, so its id stays unique.
            met = known[id(given)] = function(given), given
        return met[0]

    return remembering
