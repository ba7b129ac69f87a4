"""Values that a thread computes while passes run; NumPy holds no interpreter lock meanwhile."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Generic, TypeVar
from weakref import ref

from popgraph.support.locks import Lock

Value = TypeVar("Value")


class Computed(Generic[Value]):
    """
    The value that `make` returns, computed by a thread or by its first reader.

    A value that nobody holds any more is not computed.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._lock = Lock()
        self._make: Callable[[], Value] | None = make
        self._found: list[Value] = []
        _POOL.add(self)

    def __call__(self) -> Value:
        with self._lock:
            if self._make is not None:
                self._found.append(self._make())
                self._make = None
            return self._found[0]


class _Pool:
    """Threads that compute values, first come first served, and end when none is left."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        """Leaves all values to their readers: threads do not survive a fork."""
        self._waiting: deque[ref[Computed[Any]]] = deque()
        self._threads = 0

    def add(self, one: Computed[Any]) -> None:
        """Computes a value soon; without threads, its reader computes it."""
        with self._lock:
            self._waiting.append(ref(one))
            if self._threads < max(1, (os.cpu_count() or 1) - 1):
                with suppress(RuntimeError):
                    Thread(target=self._compute, daemon=True).start()
                    self._threads += 1

    def _compute(self) -> None:
        while (one := self._next()) is not None:
            with suppress(Exception):  # The reader fails again, where somebody sees it.
                one()
            del one

    def _next(self) -> Computed[Any] | None:
        with self._lock:
            while self._waiting:
                one = self._waiting.popleft()()
                if one is not None:
                    return one
            self._threads -= 1
            return None


_POOL = _Pool()

if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_POOL.clear)
