"""Progress of what takes long: reported to listeners, or else in a line on a terminal."""

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
"""Hears what begins, in a few words, and nothing when that has ended."""


def is_terminal() -> bool:
    """Whether a person is looking (NO_COLOR is respected by whoever asks rich for colours)."""
    stream = sys.stderr
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


class CompilingLine:
    """
    A line on a terminal that says what is being compiled, once that takes a while.

    A thread writes it, because a C compiler may say nothing for a minute. Only the main thread
    is listened to: what is compiled in the background keeps nobody waiting.
    """

    DELAY = 2.0
    """Seconds of compilation before which nothing is shown, and of idleness that end one."""
    AGAIN = 1.0
    """Seconds after which the line says how long it has taken so far."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._text = ""
        self._began = self._ended = 0.0
        self._spent = 0.0
        """Seconds of what has ended of this compilation."""
        self._shown = False
        self._timer: threading.Timer | None = None

    def __call__(self, text: str) -> None:
        with self._lock:
            now = time.monotonic()
            if self._text:
                self._spent, self._ended = self._spent + now - self._began, now
            elif now - self._ended > self.DELAY:
                self._spent = 0.0
            self._text, self._began = text, now
            if text:
                self._show_when_due()
            elif self._shown:
                _write("\r\x1b[K")
                self._shown = False

    def _show_when_due(self) -> None:
        """Writes the line, now or in a while; a thread writes it again."""
        spent = self._spent + time.monotonic() - self._began
        if spent >= self.DELAY:
            _write(f"\r\x1b[Kcompiling, {spent:.0f} s: {self._text}")
            self._shown = True
        if self._timer is None:
            wait = self.AGAIN if self._shown else self.DELAY - spent
            self._timer = threading.Timer(wait, self._again)
            self._timer.daemon = True
            self._timer.start()

    def _again(self) -> None:
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
def listening(listener: Listener) -> Iterator[None]:
    """Has the listener hear of all that is compiled meanwhile, instead of a person."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def silence() -> Iterator[None]:
    """Has nobody hear of what is compiled meanwhile."""
    global _silenced
    before = list(_listeners)
    _listeners.clear()
    _silenced += 1
    try:
        yield
    finally:
        _silenced -= 1
        _listeners[:] = before


def tell(text: str) -> None:
    """Says what is being done now; an empty text: it is done."""
    for listener in _listeners:
        listener(text)
    if not _listeners and not _silenced and _keeps_somebody_waiting() and is_terminal():
        _line(text)


@contextmanager
def telling(text: str) -> Iterator[None]:
    """Says what is being done, and when it is done."""
    tell(text)
    try:
        yield
    finally:
        tell("")


def _keeps_somebody_waiting() -> bool:
    """Whether this is the main thread; forked children build in the background."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and os.getpid() == _process
