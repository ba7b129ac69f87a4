"""The place of a call in the user's program: the line that made a builder add a node."""

from __future__ import annotations

import sys
from functools import lru_cache
from types import FrameType

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr

PACKAGE = __name__.partition(".")[0]
COLUMN = IntAttr(0)
"""Unknown."""


def caller() -> FrameType | None:
    """The innermost caller outside of this package, if there is one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame = frame.f_back
    return frame


def place_of_call() -> FileLineColLoc | None:
    """Its line."""
    frame = caller()
    return None if frame is None else _place(frame.f_code.co_filename, frame.f_lineno)


@lru_cache(4096)
def _place(file: str, line: int) -> FileLineColLoc:
    """Made once: what builds a model calls the same lines again and again."""
    return FileLineColLoc(_text(file), IntAttr(line), COLUMN)


@lru_cache(64)
def _text(file: str) -> StringAttr:
    return StringAttr(file)
