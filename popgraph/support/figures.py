"""Numbers in JSON and CSV, rounded to meaningful digits."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

DIGITS = 6
"""Significant digits of a measurement."""
MOMENT = 15
"""Significant digits of a time stamp, whose differences are measurements."""


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Plain data with every float rounded."""
    match value:
        case float():
            return float(f"{value:.{digits}g}")
        case dict():
            return {name: rounded(one, digits) for name, one in value.items()}
        case list() | tuple():
            return [rounded(one, digits) for one in value]
    return value


def json_text(data: object, *, digits: int = DIGITS) -> str:
    """Plain data as indented JSON."""
    return json.dumps(rounded(data, digits), indent=1)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV, headings first."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rounded(list(row)) for row in rows)
    return file.getvalue()
