"""Reentrant locks that survive a fork."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class Lock:
    """
    A reentrant lock that is free in a forked child.

    Its holder, another thread of the parent, does not exist in the child and could not release it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """The raw lock, for time-critical code; a fork replaces it."""
        _ALL.add(self)

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def forked(self) -> bool:
        """For a child: whether another thread held the lock, which is released."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
            return False
        self.lock = threading.RLock()
        return True


class ExclusiveSection(Lock):
    """A lock for a section that must not be re-entered."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False
        """Whether this thread is inside the section."""
        self.interrupted = False
        """Whether a fork interrupted the section."""

    def forked(self) -> bool:
        was_another = super().forked()
        if was_another:
            self.interrupted, self.busy = self.interrupted or self.busy, False
        return was_another


_ALL: WeakSet[Lock] = WeakSet()


def _free_all() -> None:
    for lock in list(_ALL):
        lock.forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_free_all)
