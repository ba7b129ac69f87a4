"""Schedule files: overrides of schedules, written by users or the tuner."""

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
"""One override in a file: the fields of `Override`, plus any others for readers."""


def read_schedules(path: str | Path) -> tuple[str, ...]:
    """The overrides in a file, in the form of options; ParseError if it is malformed."""
    return decisions(read_text(Path(path)), str(path))


def _unreadable(error: Exception, where: str) -> ParseError:
    return ParseError(f"the schedules cannot be read: {error}", where)


def rows_of(text: str, where: str) -> list[Row]:
    """The rows of a file; ParseError if it is malformed."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(error, where) from error
    rows = found.get(ROWS) if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        what = f"a schedule file must be a JSON object with a list {ROWS!r}"
        raise ParseError(what, where, "print one with `popgraph schedules MODEL` and edit it")
    return rows


def decisions(text: str, where: str) -> tuple[str, ...]:
    """The overrides in the text of a file."""
    rows = enumerate(rows_of(text, where))
    return tuple(str(_decision(row, f"{where}, schedule {number + 1}")) for number, row in rows)


def _decision(row: Row, where: str) -> Override:
    which = [row.get(name) for name in (CONTRACTION, OP)]
    spec = row.get(WAY)
    if [isinstance(one, str) for one in which].count(True) != 1 or not isinstance(spec, str):
        what = f"a schedule needs the text {WAY!r}, and either {CONTRACTION!r} or {OP!r}"
        raise ParseError(what, where)
    name = which[0] if which[1] is None else f"{BY_NAME}{which[1]}"
    try:
        return Override(str(name), ScheduleSpec.of(spec))
    except ValueError as error:
        raise ParseError(str(error), where, f"write {FORMS}") from error


def text_of(rows: Iterable[Mapping[str, object]]) -> str:
    """The text of a file with these rows."""
    return json.dumps({ROWS: list(rows)}, indent=1) + "\n"
