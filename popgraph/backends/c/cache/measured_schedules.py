"""The schedules measured on this machine, stored in a schedule file of the cache."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from popgraph.backends.c.cache.folder import cache_directory
from popgraph.backends.c.cache.measured import measured_text, place_in
from popgraph.dialects.tile.structured.schedule_file import (
    CONTRACTION,
    Row,
    decisions,
    rows_of,
    text_of,
)
from popgraph.support.cache_files import write_sealed
from popgraph.support.errors import ParseError

MEASURED = "measured schedules"
"""The location in errors of the file."""


def measured() -> tuple[str, ...]:
    """The schedules that `popgraph tune` found on this machine; none if the file is damaged."""
    with suppress(ParseError):
        return decisions(measured_text(), MEASURED)
    return ()


def keep_measured(rows: Iterable[Row]) -> Path:
    """Adds measured schedules; they replace earlier ones of the same contractions."""
    path = place_in(cache_directory())
    kept: dict[object, Row] = {}
    with suppress(ParseError):
        kept = {row.get(CONTRACTION): row for row in rows_of(measured_text(), MEASURED)}
    kept |= {row[CONTRACTION]: row for row in rows}
    write_sealed(path, text_of(kept.values()).encode())
    return path
