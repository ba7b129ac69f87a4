"""Tasks that a thread completes after their caller has returned."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import Thread, current_thread

from popgraph.support.forked import in_child
from popgraph.support.locks import Lock


class Tasks:
    """
    Runs tasks in a thread, one at a time.

    A process that exits or forks waits for the running task: a daemon would be killed, and a child
    has no copy of the thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._name = ""
        self._thread: Thread | None = None
        if hasattr(os, "register_at_fork"):  # Windows has no fork.
            os.register_at_fork(before=self.wait)

    def begin(self, name: str, task: Callable[[], object]) -> None:
        """
        Starts a task after the previous one.

        The caller runs it if no thread can start, or in a `Child`, which ends without its threads.
        """
        with self._lock:
            self.wait()
            if not in_child():
                thread = Thread(target=task)
                with suppress(RuntimeError):
                    thread.start()
                    self._name, self._thread = name, thread
                    return
        task()

    def wait(self, name: str | None = None) -> None:
        """Waits for the running task, or only for one of that name."""
        thread = self._thread
        if thread is not None and name in (None, self._name) and thread is not current_thread():
            thread.join()
