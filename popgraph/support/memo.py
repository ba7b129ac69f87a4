"""Memoization of functions of objects that never change, as attributes of IR."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any, Self, TypeVar, overload

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


def numbering() -> Callable[[Hashable], int]:
    """
    A function that gives equal objects equal numbers, for keys of caches.

    An attribute hashes and compares all its parameters, a number nothing. Numbers are not reused:
    an object that was evicted meanwhile gets a new one.
    """
    numbers: dict[Hashable, int] = {}
    fresh = count()

    def number(argument: Hashable) -> int:
        if len(numbers) >= MAX_ENTRIES:
            numbers.clear()
        return numbers.setdefault(argument, next(fresh))

    return by_identity(number)


class cached_property(functools.cached_property[Result]):  # noqa: TID251
    """
    A property that is computed once per object, without a lock.

    Until Python 3.12, the base holds a lock per property of a class. A child that is forked while
    another thread holds it would wait forever for any object of that class.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Result: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | Result:
        if instance is None:
            return self
        assert self.attrname is not None
        value = instance.__dict__[self.attrname] = self.func(instance)
        return value
