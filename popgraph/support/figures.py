"""Numbers as JSON and CSV have them: rounded to the digits that a measurement can mean."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

DIGITS = 6
"""Significant ones of a measured number."""
MOMENT = 15
"""Of a place on a time line, whose differences are measured numbers."""


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Plain data, every float in it rounded; whole numbers stay as they are."""
    match value:
        case float():
            return float(f"{value:.{digits}g}")
        case dict():
            return {name: rounded(one, digits) for name, one in value.items()}
        case list() | tuple():
            return [rounded(one, digits) for one in value]
    return value


def json_text(data: object, *, digits: int = DIGITS) -> str:
    """Plain data as JSON, to be read and to be parsed."""
    return json.dumps(rounded(data, digits), indent=1)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows, the headings first, as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rounded(list(row)) for row in rows)
    return file.getvalue()
