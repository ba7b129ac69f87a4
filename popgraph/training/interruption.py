"""Handles Ctrl-C and SIGTERM during training: the step ends first, and a checkpoint is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(SystemExit):
    """SIGTERM ended training; its state was saved."""

    def __init__(self, code: int, told: str) -> None:
        super().__init__(code)
        self.told = told

    def __str__(self) -> str:
        return self.told


@dataclass
class Interruption:
    """The signal that arrived, if any."""

    number: int | None = None

    def end(self, told: str) -> None:
        """Raises what the signal would have raised."""
        if self.number == signal.SIGINT:
            raise KeyboardInterrupt(told)
        if self.number is not None:
            raise Terminated(128 + self.number, told)


@contextmanager
def noted(wanted: bool) -> Iterator[Interruption]:
    """
    Records the first signal and restores the previous handlers for the next one.

    Does nothing unless `wanted` and in the main thread; other threads cannot set handlers.
    """
    found = Interruption()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        found.number = number
        restore()

    for number in SIGNALS:
        signal.signal(number, note)
    try:
        yield found
    finally:
        restore()
