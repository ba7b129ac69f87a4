"""Schedule files: overrides of schedules, as the user or the tuner writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from popgraph.dialects.tile.structured.schedule_override import (
    BY_NAME,
    FORMS,
    Override,
    ScheduleSpec,
)
from popgraph.support.errors import ParseError
from popgraph.support.texts import read_text

ROWS = "schedules"
CONTRACTION, OP, WAY = "contraction", "op", "schedule"

Row = dict[str, Any]
"""One override in a file: what `Override` needs, and whatever else a reader wants to know."""


def read_schedules(path: str | Path) -> tuple[str, ...]:
    """The overrides of a file, as options want them; ParseError when it is none."""
    return decisions(read_text(Path(path)), str(path))


def _unreadable(error: Exception, where: str) -> ParseError:
    return ParseError(f"the schedules cannot be read: {error}", where)


def rows_of(text: str, where: str) -> list[Row]:
    """The rows of a file; ParseError if it has none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(error, where) from error
    rows = found.get(ROWS) if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        what = f"a file of schedules is a JSON object with a list {ROWS!r}"
        raise ParseError(what, where, "`popgraph schedules MODEL` prints one to begin with")
    return rows


def decisions(text: str, where: str) -> tuple[str, ...]:
    """The overrides of a file's text."""
    rows = enumerate(rows_of(text, where))
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
