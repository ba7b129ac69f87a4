"""Schedule files: the user's overrides, and what the tuner measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from popgraph.backends.c.cache.folder import cache_directory
from popgraph.backends.c.cache.measured import measured_text, place_in
from popgraph.dialects.tile.structured.schedule_override import (
    BY_NAME,
    FORMS,
    Override,
    ScheduleSpec,
)
from popgraph.support.cache_files import write_sealed
from popgraph.support.errors import ParseError
from popgraph.support.texts import read_text

ROWS = "schedules"
CONTRACTION, OP, WAY = "contraction", "op", "schedule"

Row = dict[str, Any]
"""One override in a file: what `Override` needs, and whatever else a reader wants to know."""


def read(path: Path) -> tuple[str, ...]:
    """The overrides of a file, as options want them; ParseError when it is none."""
    return _decisions(read_text(path), str(path))


def _unreadable(error: Exception, where: str) -> ParseError:
    return ParseError(f"the schedules cannot be read: {error}", where)


def _rows(text: str, where: str) -> list[Row]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(error, where) from error
    rows = found.get(ROWS) if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        what = f"a file of schedules is a JSON object with a list {ROWS!r}"
        raise ParseError(what, where, "`popgraph schedules MODEL` prints one to begin with")
    return rows


def _decisions(text: str, where: str) -> tuple[str, ...]:
    rows = enumerate(_rows(text, where))
    return tuple(str(_decision(row, f"{where}, schedule {number + 1}")) for number, row in rows)


def _decision(row: Row, where: str) -> Override:
    which = [row.get(name) for name in (CONTRACTION, OP)]
    spec = row.get(WAY)
    if [isinstance(one, str) for one in which].count(True) != 1 or not isinstance(spec, str):
        what = f"a schedule has {CONTRACTION!r} or {OP!r}, not both, and {WAY!r}, all texts"
        raise ParseError(what, where)
    name = which[0] if which[1] is None else f"{BY_NAME}{which[1]}"
    try:
        return Override(str(name), ScheduleSpec.of(spec))
    except ValueError as error:
        raise ParseError(str(error), where, f"a way is {FORMS}") from error


def text_of(rows: Iterable[Mapping[str, object]]) -> str:
    """The file with these rows."""
    return json.dumps({ROWS: list(rows)}, indent=1) + "\n"


# What was measured on this machine

MEASURED = "what was measured"
"""Where its mistakes are."""


def measured() -> tuple[str, ...]:
    """What `popgraph tune` found on this machine; nothing when there is any doubt about it."""
    with suppress(ParseError):
        return _decisions(measured_text(), MEASURED)
    return ()


def keep_measured(rows: Iterable[Row]) -> Path:
    """Adds to what was measured, in place of what was measured of the same contractions before."""
    path = place_in(cache_directory())
    kept: dict[object, Row] = {}
    with suppress(ParseError):
        kept = {row.get(CONTRACTION): row for row in _rows(measured_text(), MEASURED)}
    kept |= {row[CONTRACTION]: row for row in rows}
    write_sealed(path, text_of(kept.values()).encode())
    return path
