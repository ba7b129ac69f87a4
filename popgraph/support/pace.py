"""Rate limiting of a repeated action."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class RateLimit:
    """At most once per `seconds`, and at most this fraction of the time."""

    seconds: float
    fraction: float = 0.05
    _due: float = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Runs the action; the longer it takes, the later it is due again."""
        began = time.monotonic()
        yield
        ended = time.monotonic()
        self._due = ended + max(self.seconds, (ended - began) / self.fraction)
