"""Memoization of functions of objects that never change, as attributes of IR."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Given = TypeVar("Given")
Found = TypeVar("Found")

MOST = 1 << 12
"""Objects that a function remembers."""


def by_identity(function: Callable[[Given], Found]) -> Callable[[Given], Found]:
    """
    The same function, called once per object.

    A table by equality would hash the object at every call: the type of a vector takes ten Python
    calls for that, more than the function itself. Most attributes are met again as the same object.
    """
    known: dict[int, tuple[Found, Given]] = {}

    def remembering(given: Given) -> Found:
        met = known.get(id(given))
        if met is None:
            if len(known) >= MOST:
                known.clear()
            # An object that is kept keeps its identity.
            met = known[id(given)] = function(given), given
        return met[0]

    return remembering
