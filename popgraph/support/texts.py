"""Reads text files; failures are parse errors."""

from __future__ import annotations

from pathlib import Path

from popgraph.support.errors import ParseError
from popgraph.support.reading import Unreadable, reading


def read_text(path: Path) -> str:
    """The text of a file; ParseError if it cannot be read."""
    try:
        with reading("this is not UTF-8 text"):
            return path.read_text("utf-8")
    except Unreadable as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            raise ParseError(str(error), str(path), "save the file as UTF-8") from error
        raise ParseError(f"the file cannot be read: {error}", str(path)) from error
