"""Work in a forked child: what it computes stays there, and the parent's interpreter is free."""

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
"""Of the child: the parent answers somebody."""
MOST_TOLD = 4000
"""Characters of an error that a child tells: a pipe takes them at once."""
PATIENCE = 2.0
"""Seconds in which a child that is told to end tidies up."""
REMINDERS = 20
"""How often it is told in that time."""


def can_fork() -> bool:
    """Whether a child goes on where the parent was; elsewhere libraries of the system may not."""
    return sys.platform == "linux"


class Child:
    """
    A child that does some work and says whether it succeeded.

    `while_forking` is held at the moment of the fork: what it guards is whole in the child.
    """

    def __init__(
        self, work: Callable[[], object], while_forking: AbstractContextManager[object]
    ) -> None:
        """OSError where there can be no child, RuntimeError when this process ends."""
        if _ENDING.is_set():
            raise RuntimeError("this process ends")
        ours, theirs = os.pipe()
        try:
            with while_forking, warnings.catch_warnings():
                # Other threads are not in the child, and whatever they hold it does not want.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
        except OSError:
            os.close(ours)
            os.close(theirs)
            raise
        if self.pid == 0:
            _be_child(work, theirs)
        os.close(theirs)
        self._told = ours
        self._ended = threading.Event()
        self._parent = os.getpid()
        _CHILDREN.add(self)

    def outcome(self) -> str:
        """Waits for its end: nothing if all went well, else what went wrong."""
        line = b""
        while not line.endswith(b"\n") and (more := os.read(self._told, 4096)):
            line += more
        os.close(self._told)
        code = 0
        with suppress(ChildProcessError):  # Somebody has waited for it before.
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()
        if line.endswith(b"\n"):
            return str(json.loads(line))
        return f"its process ended by {signal.Signals(-code).name}" if code < 0 else "it ended"

    def end(self) -> None:
        """Ends it, and what it has started, at once; another thread waits for its outcome."""
        if self._ended.is_set() or self._parent != os.getpid():
            return
        # Again and again: what it was about to start has not heard the first time.
        for number in (*[signal.SIGTERM] * REMINDERS, signal.SIGKILL):
            self._tell_all(number)
            if self._ended.wait(PATIENCE / REMINDERS):
                break
        self._tell_all(signal.SIGKILL)  # What it started as it ended has heard nothing yet.

    def _tell_all(self, number: signal.Signals) -> None:
        """A signal for the child and what it has started, if anything of it is left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


_CHILDREN = WeakSet[Child]()
_ENDING = threading.Event()


@atexit.register
def _end_all() -> None:
    """Nobody would use what children still make."""
    _ENDING.set()
    for child in list(_CHILDREN):
        child.end()


def _be_child(work: Callable[[], object], told: int) -> None:
    """Never returns: what the parent would do at its end is the parent's."""
    reason = "it was interrupted"
    try:
        os.setpgid(0, 0)  # Ctrl-C is for the parent, and whoever ends this one ends all.
        signal.signal(signal.SIGTERM, _stop)
        for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        with suppress(OSError):
            os.nice(NICENESS)
        _let_go(told)
        work()
        reason = ""
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
    finally:
        with suppress(OSError):
            os.write(told, json.dumps(reason[:MOST_TOLD]).encode() + b"\n")
        os._exit(0)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, _heard)
    raise SystemExit("it was told to end")


def _heard(number: int, frame: FrameType | None) -> None:
    """Lets it tidy up; programs that it starts would inherit that signals are ignored."""


def _let_go(kept: int) -> None:
    """Pipes, sockets and terminals of the parent end when the parent lets them go."""
    null = os.open(os.devnull, os.O_RDWR)
    for name in Path("/proc/self/fd").iterdir():
        number = int(name.name)
        with suppress(OSError):
            mode = os.fstat(number).st_mode
            if number not in (kept, null) and (number < 3 or _is_shared(mode)):
                os.dup2(null, number, inheritable=number < 3)


def _is_shared(mode: int) -> bool:
    """Whether somebody at another end hears when the last holder of a file lets it go."""
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
