"""Runs work in a forked child, which leaves the parent's interpreter free."""

from __future__ import annotations

import atexit
import json
import os
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import FrameType
from weakref import WeakSet

NICENESS = 5
"""Niceness of the child, so that the parent stays responsive."""
MAX_ERROR_LENGTH = 4000
"""Maximum length of an error message from the child, which a pipe takes without blocking."""
SECONDS_TO_END = 2.0
"""Seconds for a child to clean up when it is terminated."""
SIGNALS = 20
"""Number of signals sent during that time."""


def can_fork() -> bool:
    """
    Whether a forked child can continue the parent's work; outside Linux, system libraries may not.
    """
    return sys.platform == "linux"


class Child:
    """
    A child process that runs some work and reports its success.

    `while_forking` is held during the fork, so the data it guards are consistent in the child.
    """

    def __init__(
        self, work: Callable[[], object], while_forking: AbstractContextManager[object]
    ) -> None:
        """OSError if no child can be created, RuntimeError if this process is exiting."""
        if _ENDING.is_set():
            raise RuntimeError("this process is exiting")
        ours, theirs = os.pipe()
        try:
            with while_forking, warnings.catch_warnings():
                # Other threads do not exist in the child, so their locks are of no use there.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
        except OSError:
            os.close(ours)
            os.close(theirs)
            raise
        if self.pid == 0:
            _run_child(work, theirs)
        os.close(theirs)
        self._reports = ours
        self._ended = threading.Event()
        self._parent = os.getpid()
        _CHILDREN.add(self)

    def outcome(self) -> str:
        """Waits for the child; "" on success, else the error."""
        line = b""
        while not line.endswith(b"\n") and (more := os.read(self._reports, 4096)):
            line += more
        os.close(self._reports)
        code = 0
        with suppress(ChildProcessError):  # Another thread has waited for it already.
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()
        if line.endswith(b"\n"):
            return str(json.loads(line))
        return f"its process ended by {signal.Signals(-code).name}" if code < 0 else "it ended"

    def end(self) -> None:
        """Terminates the child and its subprocesses; another thread waits for the outcome."""
        if self._ended.is_set() or self._parent != os.getpid():
            return
        # Repeated, since a subprocess that just started may have missed the first signal.
        for number in (*[signal.SIGTERM] * SIGNALS, signal.SIGKILL):
            self._signal_all(number)
            if self._ended.wait(SECONDS_TO_END / SIGNALS):
                break
        self._signal_all(signal.SIGKILL)  # Subprocesses that started meanwhile got no signal yet.

    def _signal_all(self, number: signal.Signals) -> None:
        """Signals the child and its subprocesses, if any are left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


_CHILDREN = WeakSet[Child]()
_ENDING = threading.Event()
_IN_CHILD = threading.Event()


@atexit.register
def _end_all() -> None:
    """Terminates all children when the parent exits."""
    _ENDING.set()
    for child in list(_CHILDREN):
        child.end()


def in_child() -> bool:
    """Whether this process is a `Child`."""
    return _IN_CHILD.is_set()


def _run_child(work: Callable[[], object], reports: int) -> None:
    """Runs in the child and never returns, so that exit handlers of the parent do not run."""
    reason = "it was interrupted"
    _IN_CHILD.set()
    try:
        os.setpgid(0, 0)  # Ctrl-C must not reach it, and one signal must end its subprocesses.
        signal.signal(signal.SIGTERM, _stop)
        for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        with suppress(OSError):
            os.nice(NICENESS)
        _release_files(reports)
        work()
        reason = ""
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
    finally:
        with suppress(OSError):
            os.write(reports, json.dumps(reason[:MAX_ERROR_LENGTH]).encode() + b"\n")
        os._exit(0)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, _ignore)
    raise SystemExit("it was terminated")


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignores a signal by a handler, since subprocesses inherit SIG_IGN but no handlers."""


def _release_files(kept: int) -> None:
    """Closes pipes, sockets and terminals, so that they end with the parent."""
    null = os.open(os.devnull, os.O_RDWR)
    for name in Path("/proc/self/fd").iterdir():
        number = int(name.name)
        with suppress(OSError):
            mode = os.fstat(number).st_mode
            if number not in (kept, null) and (number < 3 or _is_shared(mode)):
                os.dup2(null, number, inheritable=number < 3)


def _is_shared(mode: int) -> bool:
    """Whether the other end of a file notices when its last holder closes it."""
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
