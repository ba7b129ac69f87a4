"""Memoization of functions of objects that never change, as attributes of IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")

MAX_ENTRIES = 1 << 12
"""Maximum number of cached objects per function."""


def by_identity(function: Callable[[Argument], Result]) -> Callable[[Argument], Result]:
    """
    Caches a function by object identity.

    A cache by equality would hash the object at each call: ten Python calls for a vector type, more
    than the function itself. Most attributes recur as the same object.
    """
    known: dict[int, tuple[Result, Argument]] = {}

    def memoized(argument: Argument) -> Result:
        entry = known.get(id(argument))
        if entry is None:
            if len(known) >= MAX_ENTRIES:
                known.clear()
            # A cached object is kept alive, so its id stays unique.
            entry = known[id(argument)] = function(argument), argument
        return entry[0]

    return memoized
