"""Ctrl-C in code where an exception would be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminating_on_sigint() -> Iterator[None]:
    """Makes Ctrl-C terminate the process by the signal, not by an exception."""
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
