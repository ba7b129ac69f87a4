"""Background tuning: a quick program runs until a tuned one replaces it."""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from threading import Event, Thread
from typing import TypeAlias
from weakref import WeakSet, ref

from popgraph.backends.base import ComputedBy, Executable
from popgraph.support.arrays import Array
from popgraph.support.determinism import PORTABLE, wanted
from popgraph.support.errors import RunError
from popgraph.support.locks import Lock
from popgraph.support.progress import is_awaited
from popgraph.support.spelling import setting
from popgraph.support.warnings import UntunedProgramWarning

TunedListener: TypeAlias = Callable[[Executable], None]
"""Called with a tuned program."""

BUILDING = Lock()
"""Held while a tuned program is built: one at a time leaves cores to running programs."""

VARIABLE = "POPGRAPH_QUICK"
"""The environment variable that decides where a caller leaves `quick` open: "1" or "0"."""

LEAST_OPERATIONS = 150
"""
Operations of a model from which an automatic quick program pays.

CPU seconds of passes and gcc, quick and tuned: LeNet (29 operations) 0.6 and 0.7, BERT tiny (110)
1.3 and 1.7, MobileNetV2 (431) 1.8 and 3.8. Two builds of a small model cost more than they save.
"""

NOTICE = (
    "popgraph: a quick program answers until the tuned one is built; its results may differ in "
    "the last bits"
)
"""Printed once per process if the bits of an automatic quick program may differ."""

PATIENCE = 2.0
"""Seconds that the process waits at exit for building threads."""


class QuickProgram(Executable):
    """
    A program that is replaced, between two runs, by an equivalent faster one.

    Variables keep their values. If the tuned program cannot be built, the quick one stays, and the
    next run warns.
    """

    def __init__(self, quick: Executable) -> None:
        self.program = quick
        """The active program."""
        self.inputs, self.outputs, self.variables = quick.inputs, quick.outputs, quick.variables
        self._next: Executable | None = None
        """The program that replaces it at the next run."""
        self._failure = ""
        self._is_told = False
        self._settled = Event()
        """Set once the tuned program is built or has failed."""
        self._listeners: list[TunedListener] = []
        self._stepping, self._settling = Lock(), Lock()
        self._busy = False
        """Whether this thread is inside a run, during which nothing is replaced."""
        self._process = os.getpid()

    @property
    def tuned(self) -> bool:
        """Whether the tuned program is ready."""
        return self._settled.is_set() and not self._failure

    @property
    def computed_by(self) -> ComputedBy:
        return self.program.computed_by

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the tuned program is ready or has failed; returns whether it is ready."""
        if self._process == os.getpid():  # A forked child has no thread that builds.
            self._settled.wait(timeout)
        self._warn()
        return self.tuned

    def then(self, listener: TunedListener) -> None:
        """Calls `listener` with the tuned program as soon as it is ready."""
        with self._settling:
            if not self._settled.is_set():
                self._listeners.append(listener)
            elif self.tuned:
                listener(self._next or self.program)

    def settle(self, tuned: Executable) -> None:
        """Schedules the tuned program to replace the quick one."""
        for facts in ("inputs", "outputs", "variables"):
            assert getattr(self, facts) == getattr(tuned, facts), f"it has other {facts}"
        with self._settling:
            for listener in self._listeners:
                listener(tuned)
            self._next = tuned
            self._settled.set()

    def fail(self, reason: str) -> None:
        """Records that there will be no tuned program."""
        with self._settling:
            self._failure = reason
            self._settled.set()

    @property
    def arena(self) -> int:
        return self.program.arena

    @property
    def donations(self) -> Mapping[str, str]:
        """Donations of the tuned program, for which this waits: quick programs do less in place."""
        self.wait()
        with self._stepping:
            self._take_over()
            return self.program.donations

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        with self._stepping.lock:
            self._take_over()
            if donate and not self.program.donations.keys() >= set(donate):
                self.wait()
                self._take_over()
            was, self._busy = self._busy, True
            try:
                return self.program.run(inputs, donate)
            finally:
                self._busy = was

    def run_stacked(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        with self._stepping:
            self._take_over()
            if self._settled.is_set() and self._next is None:
                return self.program.run_stacked(inputs, count)
            return super().run_stacked(inputs, count)  # The tuned one need not wait for all.

    def read(self, variable: str) -> Array:
        with self._stepping:
            return self.program.read(variable)

    def write(self, variable: str, value: Array) -> None:
        with self._stepping:
            self.program.write(variable, value)

    def _take_over(self) -> None:
        """Activates the tuned program, if it is ready, with the current variables."""
        self._warn()
        following = self._next
        if following is None or self._busy:
            return
        for name in self.variables:
            following.write(name, self.program.read(name))
        self.program, self._next = following, None

    def _warn(self) -> None:
        if self._failure and not self._is_told:
            self._is_told = True
            warnings.warn(
                f"the tuned program could not be built, the quick one continues: {self._failure}\n"
                "  try: compile without quick, and the error shows where it happens",
                UntunedProgramWarning,
                stacklevel=5,
            )


class Backlog:
    """The quick programs of a model; their tuned programs are built one at a time."""

    def __init__(self, *, is_automatic: bool = False, notice: str = "") -> None:
        self.is_automatic = is_automatic
        """
        Whether the user left the choice open: then small models, and programs for many sizes, are
        tuned at once.
        """
        self._notice = notice
        """Printed with the first quick program of the process, if any."""
        self._programs = WeakSet[QuickProgram]()

    def add(self, quick: Executable, build: Callable[[], Executable]) -> Executable:
        """Wraps a quick program that the result of `build` will replace."""
        if self._notice:
            _print_once(f"{self._notice} ({setting('quick', False)} waits for the tuned one)")
        made = QuickProgram(quick)
        self._programs.add(made)
        thread = Thread(target=_tune, args=(ref(made), build), daemon=True, name="popgraph-tuning")
        _THREADS.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            made.fail(str(error))
        return made

    @property
    def tuned(self) -> bool:
        """Whether all programs are tuned."""
        return all(program.tuned for program in list(self._programs))

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for all programs, `timeout` seconds in total; returns whether they are tuned."""
        until = None if timeout is None else time.monotonic() + timeout
        for program in list(self._programs):
            program.wait(None if until is None else max(0.0, until - time.monotonic()))
        return self.tuned


class Deferred(Backlog):
    """Collects the builders of tuned programs, without wrapping the quick ones."""

    def __init__(self, *, is_automatic: bool = False) -> None:
        super().__init__(is_automatic=is_automatic)
        self.builds: list[Callable[[], Executable]] = []

    def add(self, quick: Executable, build: Callable[[], Executable]) -> Executable:
        self.builds.append(build)
        return quick

    @property
    def tuned(self) -> bool:
        return not self.builds


def backlog_for(
    quick: bool | None, *, is_native: bool, determinism: str = "", trains: bool = False
) -> Backlog | None:
    """
    The backlog of a model for the user's choice of `quick`; None: all programs are tuned at once.

    If the choice is open (None), `POPGRAPH_QUICK` decides. Without it, models get a quick program
    where it has the bits of the tuned one (portable determinism), and models for inference also
    where a person waits (`is_awaited`).
    """
    if not is_native or quick is False:
        return None
    if quick:
        return Backlog()
    said = os.environ.get(VARIABLE, "").strip()
    if said not in ("", "0", "1"):
        raise RunError(f"{VARIABLE} is {said!r}", VARIABLE, "1 or 0, or leave it unset")
    if said:
        return Backlog() if said == "1" else None
    if wanted(determinism) == PORTABLE:
        return Backlog(is_automatic=True)
    return None if trains or not is_awaited() else Backlog(is_automatic=True, notice=NOTICE)


PRINTED = set[str]()
"""The lines that this process has printed."""


def _print_once(line: str) -> None:
    if line not in PRINTED and sys.stderr is not None:
        PRINTED.add(line)
        print(line, file=sys.stderr)


_THREADS = WeakSet[Thread]()
_ENDING = Event()


@atexit.register
def _end_all() -> None:
    """Waits for building threads, which stop their C compilers and clean up."""
    _ENDING.set()
    until = time.monotonic() + PATIENCE
    for thread in list(_THREADS):
        if thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))


def notify_tuned(program: object, listener: TunedListener) -> None:
    """Calls `listener` with a program once it is tuned, which most programs are from the start."""
    if isinstance(program, QuickProgram):
        program.then(listener)
    elif isinstance(program, Executable):
        listener(program)


def _tune(which: ref[QuickProgram], build: Callable[[], Executable]) -> None:
    with BUILDING:
        if which() is None or _ENDING.is_set():
            return  # Evicted: least recently used.
        tuned, failure = None, ""
        try:
            tuned = build()
        except Exception as error:
            failure = str(error) or type(error).__name__
    program = which()
    if program is None:
        return
    try:
        if tuned is not None:
            program.settle(tuned)
    except Exception as error:
        failure = str(error) or type(error).__name__
    if failure:
        program.fail(failure)
