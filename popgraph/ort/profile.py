"""The profile of a session: one event for loading and for each run, in Chrome's format."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from popgraph.support.writing import write_text


class Profile:
    """Times of a session, written by `end`."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.perf_counter_ns()
        """The time at which the profile began."""
        self._prefix = prefix
        self._events: list[str] = []

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Records the duration of a block in microseconds."""
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            event = {
                "cat": "Session",
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "dur": (time.perf_counter_ns() - start) // 1000,
                "ts": (start - self.start_ns) // 1000,
                "ph": "X",
                "name": name,
                "args": {},
            }
            self._events.append(json.dumps(event))

    def end(self) -> str:
        """Writes the file and returns its name."""
        path = Path(f"{self._prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.getpid()}.json")
        number = 0
        while path.exists():
            number += 1
            path = path.with_name(f"{path.stem}_{number}.json")
        write_text(path, "[\n" + ",\n".join(self._events) + "\n]\n")
        return str(path)
