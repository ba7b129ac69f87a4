"""Induction over a graph: what holds of a value because it holds of its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def holds(
    asked: T,
    known: dict[T, bool],
    bases: Callable[[T], Iterable[T]],
    follows: Callable[[T], bool],
) -> bool:
    """
    Whether something holds, found out for the `bases` first, however long the chain of them is.

    `follows` finds it out when the answers about the bases are `known`, where all answers stay.
    """
    waiting = [] if asked in known else [asked]
    while waiting:
        one = waiting[-1]
        unknown = [] if one in known else [base for base in bases(one) if base not in known]
        if unknown:
            known[one] = False  # What is its own base has nothing to follow from.
            waiting += unknown
        else:
            known[one] = follows(one)
            waiting.pop()
    return known[asked]
