"""Progress of long operations: reported to listeners, or else on a terminal."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from popgraph.support.locks import Lock

Listener: TypeAlias = Callable[[str], None]
"""Receives a short description of what starts, and "" when it ends."""


def is_terminal() -> bool:
    """Whether stderr is an interactive terminal; callers of rich respect NO_COLOR."""
    stream = sys.stderr
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def is_awaited() -> bool:
    """Whether a person waits for results: in a notebook or IPython, or in a terminal; not in CI."""
    if os.environ.get("CI"):
        return False
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None:
        return True
    return sys.stdout is not None and sys.stdout.isatty() and is_terminal()


class CompilingLine:
    """
    A terminal line that appears after a delay and shows the file under compilation.

    A thread writes it, since a C compiler may be silent for a minute. Only the main thread reports:
    background compilation keeps nobody waiting.
    """

    DELAY_SECONDS = 2.0
    """Seconds of compilation before the line appears, and of idleness that end it."""
    UPDATE_SECONDS = 1.0
    """Seconds between updates of the elapsed time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._text = ""
        self.offer = ""
        """A setting that shortens the wait, shown after the text."""
        self._began = self._ended = 0.0
        self._spent = 0.0
        """Seconds of the finished parts of this compilation."""
        self._shown = False
        self._timer: threading.Timer | None = None

    def __call__(self, text: str) -> None:
        with self._lock:
            now = time.monotonic()
            if self._text:
                self._spent, self._ended = self._spent + now - self._began, now
            elif now - self._ended > self.DELAY_SECONDS:
                self._spent = 0.0
            self._text, self._began = text, now
            if text:
                self._show_when_due()
            elif self._shown:
                _write("\r\x1b[K")
                self._shown = False

    def _show_when_due(self) -> None:
        """Writes the line now or after the delay; a thread updates it."""
        spent = self._spent + time.monotonic() - self._began
        if spent >= self.DELAY_SECONDS:
            _write(f"\r\x1b[Kcompiling, {spent:.0f} s: {self._text}{self.offer}")
            self._shown = True
        if self._timer is None:
            wait = self.UPDATE_SECONDS if self._shown else self.DELAY_SECONDS - spent
            self._timer = threading.Timer(wait, self._update)
            self._timer.daemon = True
            self._timer.start()

    def _update(self) -> None:
        with self._lock:
            self._timer = None
            if self._text:
                self._show_when_due()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


_line = CompilingLine()
_process = os.getpid()
_listeners: list[Listener] = []
_silenced = 0


@contextmanager
def with_listener(listener: Listener) -> Iterator[None]:
    """Redirects progress inside the block to a listener."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def silence() -> Iterator[None]:
    """Suppresses progress inside the block."""
    global _silenced
    before = list(_listeners)
    _listeners.clear()
    _silenced += 1
    try:
        yield
    finally:
        _silenced -= 1
        _listeners[:] = before


def report(text: str) -> None:
    """Reports the current action; "" reports its end."""
    for listener in _listeners:
        listener(text)
    if not _listeners and not _silenced and _is_foreground() and is_terminal():
        _line(text)


@contextmanager
def offering(setting: str) -> Iterator[None]:
    """Names a setting that starts sooner, if any, in the line of compilations in the block."""
    before, _line.offer = _line.offer, f" ({setting} starts sooner)" if setting else ""
    try:
        yield
    finally:
        _line.offer = before


@contextmanager
def reporting(text: str) -> Iterator[None]:
    """Reports an action, and its end after the block."""
    report(text)
    try:
        yield
    finally:
        report("")


def _is_foreground() -> bool:
    """
    Whether this is the main thread of the original process; forked children build in the
    background.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and os.getpid() == _process
