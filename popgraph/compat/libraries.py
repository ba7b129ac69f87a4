"""Libraries of C++ operators that a program loads, and the Python that says what these mean."""

from __future__ import annotations

import ctypes
import os
from functools import wraps
from pathlib import Path
from typing import Any

from popgraph.support.errors import ExtensionError
from popgraph.support.extensions import load_module

LOADED: list[str] = []
"""What was asked for, in words that other processes understand, whatever folder they run in."""

REPLACED: set[str] = set()
"""Names of files; opening one gives a library that has no functions of its own."""


def load_operators(asked: str) -> None:
    """
    Loads what `--load` names: a file or a module that says what operators mean, or
    `library.so=file.py` where the program loads a C++ library that this file stands for.
    """
    library, stands_for, module = asked.rpartition("=")
    if not module:
        raise ExtensionError(
            "nothing says what the operators of a library mean",
            f"--load {asked}",
            f"name a file of Python, as in `--load {library or 'custom_ops.so'}=operators.py`",
        )
    load_module(module)
    where = str(Path(module).resolve()) if module.endswith(".py") else module
    LOADED.append(f"{library}{stands_for}{where}")
    if stands_for:
        _replace(Path(library).name)


def _replace(library: str) -> None:
    if not REPLACED:
        ctypes.CDLL.__init__ = _opening(ctypes.CDLL.__init__)  # type: ignore[method-assign]
    REPLACED.add(library)


def _opening(real: Any) -> Any:
    """`CDLL` that opens, in place of a library that is replaced, what the process has already."""

    @wraps(real)
    def opened(self: ctypes.CDLL, name: Any, *args: Any, **others: Any) -> None:
        is_replaced = name is not None and Path(os.fsdecode(name)).name in REPLACED
        real(self, None if is_replaced else name, *args, **others)

    return opened
