"""Replaces C++ operator libraries of a program by Python modules that define the operators."""

from __future__ import annotations

import ctypes
import os
from functools import wraps
from pathlib import Path
from typing import Any

from popgraph.support.errors import ExtensionError
from popgraph.support.extensions import load_module

LOADED: list[str] = []
"""The arguments of `--load`, with absolute paths for child processes."""

REPLACED: set[str] = set()
"""File names of libraries to replace; loading one returns a library without functions."""


def load_operators(asked: str) -> None:
    """
    Implements `--load`: loads a Python file or module that defines operators.

    With `library.so=file.py`, the file also replaces the C++ library when the program loads it.
    """
    library, stands_for, module = asked.rpartition("=")
    if not module:
        raise ExtensionError(
            "the operators of the library have no definition",
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
    """`CDLL.__init__` that opens the process itself in place of a replaced library."""

    @wraps(real)
    def opened(self: ctypes.CDLL, name: Any, *args: Any, **others: Any) -> None:
        is_replaced = name is not None and Path(os.fsdecode(name)).name in REPLACED
        real(self, None if is_replaced else name, *args, **others)

    return opened
