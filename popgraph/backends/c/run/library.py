"""Loads and unloads the shared library of a program."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from popgraph.backends.c.build.system import unloader
from popgraph.backends.c.run.exchanges import connect, raising_failures
from popgraph.support.arrays import Array
from popgraph.support.errors import BackendError

Entry = Callable[[int], None]
"""A function that takes the table's address; it runs without the GIL."""

_unload = unloader()


@dataclass(eq=False)
class Code:
    """The functions of a program; the library stays loaded while this object lives."""

    prepare: Entry
    run: Entry
    library: ctypes.CDLL | None = None


def load(path: Path, name: str, *, alone: bool = False) -> Code:
    """
    Loads `NAME_prepare` and `NAME_run` of a library, which is unloaded with the result.

    Unloading matters: a process has at most 65,530 mappings, and a model with ever new shapes
    would exhaust them. A program that runs `alone`, not on all ranks, exchanges nothing.
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
    exchanges = not alone and connect(library)
    code = Code(prepare, raising_failures(run) if exchanges else run, library)
    weakref.finalize(code, _close, library._handle, stop).atexit = False
    return code


def numbers(code: Code, name: str, count: int) -> Array:
    """An array of 64-bit integers in a library, valid as long as `code` lives."""
    assert code.library is not None
    found: Array = np.ctypeslib.as_array((ctypes.c_int64 * count).in_dll(code.library, name))
    return found


def _close(handle: int, stop: Callable[[], None]) -> None:
    """Unloads a library, after the program's threads, which run its code, have ended."""
    stop()
    _unload(handle)


def _refusal(path: Path, error: Exception) -> BackendError:
    """The error for a library that cannot be loaded: for another machine, or damaged."""
    theirs, ours = machine_of(path), machine_of(Path("/proc/self/exe"))
    if theirs and ours and theirs != ours:
        return BackendError(
            f"the compiled library is for {theirs}, but this process runs on {ours}",
            str(path),
            "set CC and POPGRAPH_TARGET for this machine; "
            "`popgraph emit` writes C that can be built for another one",
        )
    return BackendError(
        f"the compiled library could not be loaded: {error}",
        str(path),
        "delete this file: it is compiled again on demand",
    )


# ELF headers

_HEAD = 20
_NAMES = {
    (1, 3): "i386", (2, 62): "x86_64", (1, 62): "x32", (1, 40): "arm", (2, 183): "aarch64",
    (1, 8): "mips", (2, 8): "mips64", (1, 20): "powerpc", (2, 21): "powerpc64", (2, 22): "s390x",
    (1, 243): "riscv32", (2, 243): "riscv64", (2, 258): "loongarch64",
}  # fmt: skip
"""Machine names by address width (1: 32 bits, 2: 64 bits) and ELF machine number."""
_ORDERS = {1: "<", 2: ">"}


def machine_of(path: Path) -> str:
    """The name of the machine; empty if the file is not ELF."""
    with suppress(OSError, struct.error, KeyError):
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if head[:4] == b"\x7fELF":
            order = _ORDERS[head[5]]
            (number,) = struct.unpack(f"{order}H", head[18:20])
            name = _NAMES.get((head[4], number), f"machine {number} of ELF")
            return f"{name}, big-endian" if order == ">" and number != 22 else name
    return ""
