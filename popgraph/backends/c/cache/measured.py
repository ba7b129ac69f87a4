"""The file of measured schedules for this machine and target."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.machine.key import machine
from popgraph.support.cache_files import read_sealed


def place_in(cache: Path) -> Path:
    """The file of measured schedules in a cache."""
    return cache / "schedules" / f"{machine()}.json"


def measured_text() -> str:
    """The content of the file; empty if nothing was measured."""
    for place in map(place_in, readable_caches()):
        with suppress(OSError, ValueError):
            return read_sealed(place).decode()
    return ""
