"""Messages of sessions: onnxruntime's severities over the logger `popgraph.ort`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from popgraph.ort.errors import WrongCall

Callback: TypeAlias = Callable[[int, str, str, str, str], object]
"""Called with severity, category, logid, code location and message."""

VERBOSE, INFO, WARNING, ERROR, FATAL = range(5)
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_LOG = logging.getLogger("popgraph.ort")

_default_severity = WARNING
_callback: Callback | None = None
noted: set[str] = set()
"""The notes that this process has logged."""


def note(text: str, severity: int = -1, logid: str = "") -> None:
    """
    Logs a warning once per process.

    `severity` is the lowest that a session logs; -1 is the default of the process.
    """
    if text not in noted and log(WARNING, text, severity, logid):
        noted.add(text)


def log(level: int, text: str, severity: int = -1, logid: str = "") -> bool:
    """Logs a message; returns whether it was severe enough."""
    if level < (_default_severity if severity < 0 else severity):
        return False
    if _callback is None:
        _LOG.log(_LEVELS[level], "%s", text)
        return True
    try:
        _callback(level, "popgraph", logid, __name__, text)
    except Exception:  # as onnxruntime: a callback cannot end a session
        _LOG.exception("the logger callback failed")
    return True


def set_default_logger_severity(severity: int) -> None:
    """Sets the lowest severity that is logged: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal."""
    global _default_severity
    _default_severity = _checked(severity)


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepts a verbosity; verbose messages have one level only."""


def set_default_logger_callback(callback: Callback | None, severity: int = WARNING) -> None:
    """Sends messages to a function instead of Python's logging; None restores the default."""
    global _callback, _default_severity
    if callback is not None and not callable(callback):
        raise WrongCall(
            f"the logger callback is a {type(callback).__name__}",
            hint="pass a function of (severity, category, logid, code_location, message), or None",
        )
    lowest = _checked(severity)
    _callback = callback
    if callback is not None:
        _default_severity = lowest


def _checked(severity: int) -> int:
    if severity not in range(5):
        raise WrongCall(
            f"invalid logging severity {severity!r}",
            hint="0 verbose, 1 info, 2 warning, 3 error, 4 fatal",
        )
    return severity
