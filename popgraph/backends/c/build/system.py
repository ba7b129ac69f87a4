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

MINGW_FLAGS = ("-Wa,-muse-unaligned-vector-move", "-static-libgcc")
"""
For GCC on Windows. It spills vectors of 32 bytes to a stack that is only aligned to 16 (GCC bug
54412), so aligned moves crash. Its run-time library is not on the path of other programs.
"""


def unloader() -> Callable[[int], Any]:
    """The function that unloads a library, given its handle."""
    if sys.platform == "win32":
        function = ctypes.WinDLL("kernel32").FreeLibrary
    else:
        function = ctypes.CDLL(None).dlclose
    function.argtypes = [ctypes.c_void_p]
    return function
