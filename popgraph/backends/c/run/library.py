"""Loads and unloads the shared library of a program."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from popgraph.backends.c.run.elf import machine_of
from popgraph.backends.c.run.exchanges import connect
from popgraph.support.arrays import Array
from popgraph.support.errors import BackendError

Entry = Callable[[int], None]
"""Takes the address of the table; the GIL is free while it runs."""

_unload = ctypes.CDLL(None).dlclose
_unload.argtypes = [ctypes.c_void_p]


@dataclass(eq=False)
class Code:
    """What a program consists of; whoever calls it holds this."""

    prepare: Entry
    run: Entry
    library: ctypes.CDLL | None = None
    exchanges: bool = False
    """Whether it tells other ranks something."""


def load(path: Path, name: str, *, alone: bool = False) -> Code:
    """
    `NAME_prepare` and `NAME_run` of a library, which is unloaded when nobody holds them any more.

    A process can have 65,530 mappings: a model that meets ever new shapes would come to the end.
    One that is `alone` tells other ranks nothing: they do not run it.
    """
    try:
        library = ctypes.CDLL(str(path))
        prepare, run, stop = (library[f"{name}_{ending}"] for ending in ("prepare", "run", "stop"))
    except (OSError, AttributeError) as error:
        raise _refusal(path, error) from error
    for entry in (prepare, run):
        entry.argtypes = [ctypes.c_void_p]
        entry.restype = None
    stop.restype = None
    code = Code(prepare, run, library, not alone and connect(library))
    weakref.finalize(code, _close, library._handle, stop).atexit = False
    return code


def numbers(code: Code, name: str, count: int) -> Array:
    """An array of 64-bit integers of a library, to be used as long as somebody holds the code."""
    assert code.library is not None
    found: Array = np.ctypeslib.as_array((ctypes.c_int64 * count).in_dll(code.library, name))
    return found


def _close(handle: int, stop: Callable[[], None]) -> None:
    """The program's threads end first: they run its code."""
    stop()
    _unload(handle)


def _refusal(path: Path, error: Exception) -> BackendError:
    """Why a library cannot be loaded: it is for another machine, or damaged."""
    theirs, ours = machine_of(path), machine_of(Path("/proc/self/exe"))
    if theirs and ours and theirs != ours:
        return BackendError(
            f"the compiled library is for {theirs}, and this process runs on {ours}",
            str(path),
            "CC and POPGRAPH_TARGET say for which machine code is made; "
            "`popgraph emit` writes C that can be built for another one",
        )
    return BackendError(
        f"the compiled library could not be loaded: {error}",
        str(path),
        "delete this file; it is compiled again when it is needed",
    )
