"""Induction over a graph: a property of a value that follows from its operands."""

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
    Whether a property holds, decided for the `bases` first; without recursion, for long chains.

    `follows` decides when all bases are in `known`, which keeps all answers.
    """
    waiting = [] if asked in known else [asked]
    while waiting:
        one = waiting[-1]
        unknown = [] if one in known else [base for base in bases(one) if base not in known]
        if unknown:
            known[one] = False  # Breaks cycles: a value that is its own base does not have it.
            waiting += unknown
        else:
            known[one] = follows(one)
            waiting.pop()
    return known[asked]
