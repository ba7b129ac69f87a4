"""PopART's logger: `getLogger("session").setLevel("INFO")`, and deprecation notices."""

from __future__ import annotations

import logging
import warnings

from popgraph.builder.opset.arguments import typed
from popgraph.support.logs import MODULES, level_of, log_of


@typed
class Logger:
    """The log of a module, or of all modules."""

    def __init__(self, name: str) -> None:
        self._name, self._log = name, log_of(name)

    def setLevel(self, level: str) -> None:
        """Sets the minimal level; the level of "all" applies to every module."""
        self._log.setLevel(level_of(level))
        for module in MODULES if self._name == "all" else ():
            log_of(module).setLevel(logging.NOTSET)

    def debug(self, message: str) -> None:
        self._log.debug("%s", message)

    def info(self, message: str) -> None:
        self._log.info("%s", message)

    def warn(self, message: str) -> None:
        self._log.warning("%s", message)

    def error(self, message: str) -> None:
        self._log.error("%s", message)

    def critical(self, message: str) -> None:
        self._log.critical("%s", message)


@typed
def getLogger(name: str = "all") -> Logger:
    """The log of a module, or of all modules."""
    return Logger(name)


def deprecated(notice: str) -> None:
    """Warns the caller's caller of a deprecated name, with PopART's message."""
    log_of("popart").warning("%s", notice)
    warnings.warn(notice, DeprecationWarning, stacklevel=3)
