"""When something that is done again and again is due."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Pace:
    """Not more often than every so many seconds, and never for more than a share of the time."""

    seconds: float
    share: float = 0.05
    _due: float = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around what was due: the longer it takes, the later it is due again."""
        began = time.monotonic()
        yield
        ended = time.monotonic()
        self._due = ended + max(self.seconds, (ended - began) / self.share)
