"""
Emulates a Python of Windows: removes what only POSIX systems have, and reports "win32".

Paths, processes and compiled code stay those of this system.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import signal
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty", "syslog")
NAMES: dict[ModuleType, str] = {
    os: "fork forkpty getuid geteuid getgid getegid setuid getpgid setpgid setsid killpg nice "
    "uname chown fchown lchown fchmod mkfifo sysconf confstr getloadavg sched_yield "
    "sched_getaffinity sched_setaffinity register_at_fork pread pwrite posix_fallocate sendfile "
    "WNOHANG O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_SYNC wait3 wait4 initgroups sync",
    signal: "SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP "
    "SIGUSR1 SIGUSR2 SIGWINCH SIGXCPU SIGXFSZ alarm setitimer pthread_kill pthread_sigmask "
    "sigwait siginterrupt",
    mmap: "MAP_PRIVATE MAP_SHARED MAP_ANON MAP_ANONYMOUS PROT_READ PROT_WRITE MADV_HUGEPAGE",
}
"""The names of POSIX that Python lacks on Windows, by module."""
THIRD_PARTY = (
    *("concurrent.futures", "importlib.metadata", "json", "logging", "multiprocessing", "pathlib"),
    *(
        "shutil",
        "subprocess",
        "tempfile",
        "uuid",
        "webbrowser",
        "zipfile",
        "numpy",
        "onnx",
        "typer",
    ),
    *(
        "onnx.reference",
        "onnx.checker",
        "platformdirs",
        "pygments",
        "rich.console",
        "rich.progress",
    ),
    *("xdsl.dialects.builtin", "lark", "cbor2", "ml_dtypes", "numpy.testing", "http.server"),
    *("multiprocessing.connection", "hypothesis", "asyncio", "email", "ctypes.util"),
    *("sklearn.metrics", "sklearn.model_selection", "sklearn.utils"),
)
"""Modules that are imported before: they have their own forms for Windows, chosen at import."""


def emulate() -> None:
    """Changes this process."""
    for name in THIRD_PARTY:
        importlib.import_module(name)
    for module, names in NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in (*MODULES, "torch", "mpi4py"):
        sys.modules[name] = None  # type: ignore[assignment]
    free = ctypes.CDLL(None).dlclose
    ctypes.WinDLL = lambda name: SimpleNamespace(FreeLibrary=free)  # type: ignore[attr-defined]
    sys.platform = "win32"


def modules() -> list[str]:
    """All modules of PopGraph, without `compat`, which gives other modules their names."""
    package = Path(__file__).parent.parent / "popgraph"
    files = [path.relative_to(package.parent) for path in sorted(package.rglob("*.py"))]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    return [name for name in names if ".compat" not in name and not name.endswith("__main__")]
