"""Reentrant locks that survive a fork."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class Lock:
    """
    A lock that its thread may take again, and that a forked child finds free.

    Whoever held it there, another thread of the parent, is not in the child to give it back.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """To be taken itself where time matters; a fork puts another one here."""
        _ALL.add(self)

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def forked(self) -> bool:
        """To be called in a child: whether another thread held the lock; it is free now."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
            return False
        self.lock = threading.RLock()
        return True


class ExclusiveSection(Lock):
    """A lock of something that must be finished before it begins again."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False
        """Whether this thread is in the middle of it: to begin again would spoil it."""
        self.interrupted = False
        """Whether a fork left it unfinished in this process."""

    def forked(self) -> bool:
        was_another = super().forked()
        if was_another:
            self.interrupted, self.busy = self.interrupted or self.busy, False
        return was_another


_ALL: WeakSet[Lock] = WeakSet()


def _free_all() -> None:
    for lock in list(_ALL):
        lock.forked()


os.register_at_fork(after_in_child=_free_all)
