"""PopART's logger: `getLogger("session").setLevel("INFO")`, and notices of deprecated names."""

from __future__ import annotations

import logging
import warnings

from popgraph.builder.opset.arguments import typed
from popgraph.support.logs import MODULES, level_of, log_of


@typed
class Logger:
    """The log of a module, or of all."""

    def __init__(self, name: str) -> None:
        self._name, self._log = name, log_of(name)

    def setLevel(self, level: str) -> None:
        """What is less important is not written; the level of all is that of every module."""
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
    """The log of a module, or of all."""
    return Logger(name)


def deprecated(notice: str) -> None:
    """Tells whoever called the caller to use another name, in PopART's words."""
    log_of("popart").warning("%s", notice)
    warnings.warn(notice, DeprecationWarning, stacklevel=3)
