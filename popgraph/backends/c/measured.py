"""Which file holds the schedules that were measured on this machine, and in which state is it?"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from popgraph.backends.c.toolchain import machine, readable_caches


def place_in(cache: Path) -> Path:
    """Where a cache keeps what was measured for this machine and target."""
    return cache / "schedules" / f"{machine()}.json"


def measured_file() -> Path | None:
    """The file; None when nothing was measured."""
    return next(filter(Path.is_file, map(place_in, readable_caches())), None)


def measured_text() -> str:
    """What is in it, for those who only need to know whether it changed."""
    path = measured_file()
    with suppress(OSError, UnicodeDecodeError):
        return "" if path is None else path.read_text("utf-8")
    return ""
