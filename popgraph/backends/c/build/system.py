"""Conventions of operating systems for shared libraries: flags, file names, loading."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class System:
    """The conventions of an operating system."""

    suffix: str
    """The file name extension of shared libraries."""
    threads: tuple[str, ...] = ("-pthread",)
    """Flags for programs with threads."""
    compile: tuple[str, ...] = ("-fPIC",)
    """Flags for code in a shared library."""
    libraries: tuple[str, ...] = ("-lm",)


LINUX = System(".so")
MACOS = System(".dylib")
WINDOWS = System(".dll", (), (), ())
"""All code is position-independent, threads are Win32's, and libm is in the C run-time."""

HERE = {"win32": WINDOWS, "darwin": MACOS}.get(sys.platform, LINUX)

UNALIGNED = "-Wa,-muse-unaligned-vector-move"
"""
For GCC on Windows, which may align the stack to 16 bytes only and then store vectors of 32 bytes
by moves that crash (GCC bug 54412). GCC 12 passes the tests without the flag, too.
"""
MINGW_FLAGS = (UNALIGNED, "-static-libgcc", "-Wl,--allow-multiple-definition")
"""
For shared libraries of GCC on Windows: its run-time library is not on the path of other programs,
and objects may contain the same kernel (POPGRAPH_WEAK in `runtime.h`).
"""


def unloader() -> Callable[[int], Any]:
    """The function that unloads a library, given its handle."""
    if sys.platform == "win32":
        function = ctypes.WinDLL("kernel32").FreeLibrary
    else:
        function = ctypes.CDLL(None).dlclose
    function.argtypes = [ctypes.c_void_p]
    return function
