"""PopART's logger, on Python's `logging`."""

from __future__ import annotations

import logging
import os
import sys

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


class Logger:
    """A module's log: `getLogger("session").setLevel("INFO")`."""

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger("popart" if name == "all" else f"popart.{name}")

    def setLevel(self, level: str) -> None:
        self._log.setLevel(LEVELS.get(level, LEVELS["OFF"]))

    def debug(self, message: str) -> None:
        self._log.debug(message)

    def info(self, message: str) -> None:
        self._log.info(message)

    def warn(self, message: str) -> None:
        self._log.warning(message)

    def error(self, message: str) -> None:
        self._log.error(message)

    def critical(self, message: str) -> None:
        self._log.critical(message)


def getLogger(name: str = "all") -> Logger:
    """The log of a module, or of all."""
    _set_up()
    return Logger(name)


def _set_up() -> None:
    """The first use decides where logs go and which level they start at."""
    root = logging.getLogger("popart")
    if root.handlers:
        return
    where = os.environ.get("POPART_LOG_DEST", "stderr")
    streams = {"stderr": sys.stderr, "stdout": sys.stdout}
    handler: logging.Handler
    if where in streams:
        handler = logging.StreamHandler(streams[where])
    else:
        handler = logging.FileHandler(where)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(name)s %(levelname)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    )
    root.addHandler(handler)
    root.propagate = False
    level = os.environ.get("POPART_LOG_LEVEL", "WARN")
    root.setLevel(LEVELS.get(level, LEVELS["OFF"]))
