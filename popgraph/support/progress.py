"""Progress of what takes long: told to whoever listens, which is nobody by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Listener: TypeAlias = Callable[[str], None]
"""Hears what begins, in a few words, and nothing when that has ended."""

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Has the listener hear of all that is compiled meanwhile."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def silence() -> Iterator[None]:
    """Has nobody hear of what is compiled meanwhile."""
    before = list(_listeners)
    _listeners.clear()
    try:
        yield
    finally:
        _listeners[:] = before


def tell(text: str) -> None:
    """Says what is being done now; an empty text: it is done."""
    for listener in _listeners:
        listener(text)
