"""Logs of the compiler by module and level, configured by PopART's environment variables."""

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
"""PopART's names of the levels; any other word means OFF."""

MODULES = (
    "session", "ir", "devicex", "transform", "pattern", "builder", "op", "opx", "ces", "python",
)  # fmt: skip
"""PopART's log modules."""

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
    """The level of a name."""
    return LEVELS.get(word, LEVELS["OFF"])


def log_of(module: str) -> logging.Logger:
    """The logger of a module; modules without a level follow "all"."""
    _set_up()
    return _named(module)


def _named(module: str) -> logging.Logger:
    return logging.getLogger("popart" if module == "all" else f"popart.{module}")


@cache
def _set_up() -> None:
    """Configures destination and levels from the environment."""
    root = _named("all")
    handler = _handler(_asked("LOG_DEST", "stderr"))
    handler.setFormatter(Pattern(_asked("LOG_FORMAT", DEFAULT_FORMAT)))
    root.addHandler(handler)
    root.propagate = False
    root.setLevel(level_of(_asked("LOG_LEVEL", "WARN")))
    if path := _asked("LOG_CONFIG", ""):
        _set_levels(_levels_in(Path(path)))


def _asked(name: str, default: str) -> str:
    """A variable of PopART, or of PopONNX under its former name."""
    before = os.environ.get(f"POPONNX_{name}", default)
    return os.environ.get(f"POPART_{name}", before)


def _handler(destination: str) -> logging.Handler:
    if destination in ("stderr", "stdout"):
        return _Standard(destination)
    return logging.FileHandler(destination)


class _Standard(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr` or `sys.stdout`."""

    def __init__(self, name: str) -> None:
        self._stream_name = name
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        found: TextIO = getattr(sys, self._stream_name)
        return found


def _levels_in(path: Path) -> Mapping[str, str]:
    """Reads levels from a file such as `{"all": "WARN", "popart:session": "DEBUG"}`."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise PopgraphError(
            f"log levels cannot be read: {error}",
            f"POPART_LOG_CONFIG={path}",
            'write a JSON file such as {"all": "WARN", "popart:session": "DEBUG"}',
        ) from error
    return {str(module): str(level) for module, level in found.items()}


def _set_levels(levels: Mapping[str, str]) -> None:
    for module, level in levels.items():
        _named(module.removeprefix("popart:")).setLevel(level_of(level))


class Pattern(logging.Formatter):
    """Formats lines by a spdlog pattern, in UTC, without colours."""

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
        """A date or time field; unknown flags stay as they are."""
        return time.strftime(f"%{flag}", time.gmtime(record.created))
