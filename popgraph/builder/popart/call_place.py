"""The place of a call in the user's program: the line that made a builder add a node."""

from __future__ import annotations

import sys
from functools import lru_cache

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr

PACKAGE = __name__.partition(".")[0]
COLUMN = IntAttr(0)
"""Unknown."""


def place_of_call() -> FileLineColLoc | None:
    """The line of the innermost caller outside of this package; None if there is none."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return _place(frame.f_code.co_filename, frame.f_lineno)


@lru_cache(4096)
def _place(file: str, line: int) -> FileLineColLoc:
    """Made once: what builds a model calls the same lines again and again."""
    return FileLineColLoc(_text(file), IntAttr(line), COLUMN)


@lru_cache(64)
def _text(file: str) -> StringAttr:
    return StringAttr(file)
