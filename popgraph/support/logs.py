"""Logs of what the compiler does, by module and level, as PopART's environment variables ask."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TextIO

from popgraph.support.errors import PopgraphError

TRACE = 5
LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
"""What PopART calls the levels; any other word means OFF."""

MODULES = (
    "session", "ir", "devicex", "transform", "pattern", "builder", "op", "opx", "ces", "python",
)  # fmt: skip
"""The modules that PopART logs by."""

DEFAULT_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ %n %P.%t %L: %v"

_WORDS = {
    TRACE: "trace",
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
    logging.CRITICAL: "critical",
}


def level_of(word: str) -> int:
    """The level of this name."""
    return LEVELS.get(word, LEVELS["OFF"])


def log_of(module: str) -> logging.Logger:
    """The log of a module; "all" is what all of them follow that have no level of their own."""
    _set_up()
    return _named(module)


def _named(module: str) -> logging.Logger:
    return logging.getLogger("popart" if module == "all" else f"popart.{module}")


@cache
def _set_up() -> None:
    """The environment decides where logs go and which levels they start at."""
    root = _named("all")
    handler = _handler(_asked("LOG_DEST", "stderr"))
    handler.setFormatter(Pattern(_asked("LOG_FORMAT", DEFAULT_FORMAT)))
    root.addHandler(handler)
    root.propagate = False
    root.setLevel(level_of(_asked("LOG_LEVEL", "WARN")))
    if path := _asked("LOG_CONFIG", ""):
        _set_levels(_levels_in(Path(path)))


def _asked(name: str, default: str) -> str:
    """A variable of PopART's, or of PopONNX's, as it was called before."""
    before = os.environ.get(f"POPONNX_{name}", default)
    return os.environ.get(f"POPART_{name}", before)


def _handler(destination: str) -> logging.Handler:
    if destination in ("stderr", "stdout"):
        return _Standard(destination)
    return logging.FileHandler(destination)


class _Standard(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` or `sys.stdout` is when a line is written."""

    def __init__(self, name: str) -> None:
        self._stream_name = name
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        found: TextIO = getattr(sys, self._stream_name)
        return found


def _levels_in(path: Path) -> Mapping[str, str]:
    """The levels in a file, such as `{"all": "WARN", "popart:session": "DEBUG"}`."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PopgraphError(
            f"the levels of logs cannot be read: {error}",
            f"POPART_LOG_CONFIG={path}",
            'a JSON file such as {"all": "WARN", "popart:session": "DEBUG"}',
        ) from error
    return {str(module): str(level) for module, level in found.items()}


def _set_levels(levels: Mapping[str, str]) -> None:
    for module, level in levels.items():
        _named(module.removeprefix("popart:")).setLevel(level_of(level))


class Pattern(logging.Formatter):
    """Lines of a pattern in spdlog's language, in universal time; its colours are left out."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = pattern

    def format(self, record: logging.LogRecord) -> str:
        return re.sub("%(.)", lambda found: self._flag(found[1], record), self._pattern)

    def _flag(self, flag: str, record: logging.LogRecord) -> str:
        word = _WORDS.get(record.levelno, record.levelname.lower())
        known = {
            "v": record.getMessage(),
            "n": record.name.replace(".", ":", 1),
            "l": word,
            "L": word[0].upper(),
            "P": str(os.getpid()),
            "t": str(threading.get_native_id()),
            "e": f"{int(record.msecs):03}",
            "f": f"{int(record.msecs * 1000):06}",
            "^": "",
            "$": "",
            "%": "%",
        }
        return known[flag] if flag in known else self._time(flag, record)

    def _time(self, flag: str, record: logging.LogRecord) -> str:
        """A part of date or time; a flag that nobody knows stays as it is."""
        return time.strftime(f"%{flag}", time.gmtime(record.created))
