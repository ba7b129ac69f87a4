"""Tuning in the background: a quick program runs until the tuned one takes over from it."""

from __future__ import annotations

import atexit
import os
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from threading import Event, Thread
from typing import TypeAlias
from weakref import WeakSet, ref

from popgraph.backends.base import ComputedBy, Executable
from popgraph.support.arrays import Array
from popgraph.support.locks import Lock
from popgraph.support.warnings import UntunedProgramWarning

Hear: TypeAlias = Callable[[Executable], None]
"""Hears of a tuned program."""

BUILDING = Lock()
"""Held while a tuned program is built: one at a time leaves cores for those that run."""


PATIENCE = 2.0
"""Seconds that the end of the process waits for threads that build."""


class QuickProgram(Executable):
    """
    A program that is replaced, between two runs, by one that means the same and is faster.

    Variables go on as they are. Where there can be no tuned program, the quick one stays, and the
    next run warns.
    """

    def __init__(self, quick: Executable) -> None:
        self.program = quick
        """The one that runs."""
        self.inputs, self.outputs, self.variables = quick.inputs, quick.outputs, quick.variables
        self._next: Executable | None = None
        """What takes over when the next run begins."""
        self._failure = ""
        self._is_told = False
        self._settled = Event()
        """Set when it is known what has become of the tuned program."""
        self._hearers: list[Hear] = []
        self._stepping, self._settling = Lock(), Lock()
        self._busy = False
        """Whether this thread is in the middle of a run: nothing takes over then."""
        self._process = os.getpid()

    @property
    def tuned(self) -> bool:
        """Whether the tuned program is there."""
        return self._settled.is_set() and not self._failure

    @property
    def computed_by(self) -> ComputedBy:
        return self.program.computed_by

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the tuned program is there, or cannot be; says whether it is there."""
        if self._process == os.getpid():  # A forked child has no thread that builds.
            self._settled.wait(timeout)
        self._warn()
        return self.tuned

    def then(self, hear: Hear) -> None:
        """Tells somebody of the tuned program as soon as it is there."""
        with self._settling:
            if not self._settled.is_set():
                self._hearers.append(hear)
            elif self.tuned:
                hear(self._next or self.program)

    def settle(self, tuned: Executable) -> None:
        """Has the tuned program take over."""
        for facts in ("inputs", "outputs", "variables"):
            assert getattr(self, facts) == getattr(tuned, facts), f"it has other {facts}"
        with self._settling:
            for hear in self._hearers:
                hear(tuned)
            self._next = tuned
            self._settled.set()

    def fail(self, reason: str) -> None:
        """There will be no tuned program."""
        with self._settling:
            self._failure = reason
            self._settled.set()

    @property
    def arena(self) -> int:
        return self.program.arena

    @property
    def donations(self) -> Mapping[str, str]:
        """Those of the tuned program, for which this waits: quick ones can do less in place."""
        self.wait()
        with self._stepping:
            self._take_over()
            return self.program.donations

    def run(self, inputs: Mapping[str, Array], donate: Collection[str] = ()) -> dict[str, Array]:
        with self._stepping:
            self._take_over()
            if not self.program.donations.keys() >= set(donate):
                self.wait()
                self._take_over()
            was, self._busy = self._busy, True
            try:
                return self.program.run(inputs, donate)
            finally:
                self._busy = was

    def run_in_row(self, inputs: Mapping[str, Array], count: int) -> dict[str, Array]:
        with self._stepping:
            self._take_over()
            if self._settled.is_set() and self._next is None:
                return self.program.run_in_row(inputs, count)
            return super().run_in_row(inputs, count)  # The tuned one need not wait for all.

    def read(self, variable: str) -> Array:
        with self._stepping:
            return self.program.read(variable)

    def write(self, variable: str, value: Array) -> None:
        with self._stepping:
            self.program.write(variable, value)

    def _take_over(self) -> None:
        """The tuned program, if it is there, goes on where the quick one has stopped."""
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
                f"the tuned program could not be built, the quick one goes on: {self._failure}\n"
                "  try: compile without quick, and the error shows where it happens",
                UntunedProgramWarning,
                stacklevel=5,
            )


class Backlog:
    """The quick programs of a model, whose tuned ones are built one after the other."""

    def __init__(self) -> None:
        self._programs = WeakSet[QuickProgram]()

    def add(self, quick: Executable, build: Callable[[], Executable]) -> Executable:
        """The quick program as one that the result of `build` takes over from."""
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
        """Whether all that there are have been tuned."""
        return all(program.tuned for program in list(self._programs))

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for all that there are, in all so many seconds; says whether they are tuned."""
        until = None if timeout is None else time.monotonic() + timeout
        for program in list(self._programs):
            program.wait(None if until is None else max(0.0, until - time.monotonic()))
        return self.tuned


class Deferred(Backlog):
    """Quick programs as they are: whoever wants the tuned ones calls `builds`."""

    def __init__(self) -> None:
        super().__init__()
        self.builds: list[Callable[[], Executable]] = []

    def add(self, quick: Executable, build: Callable[[], Executable]) -> Executable:
        self.builds.append(build)
        return quick

    @property
    def tuned(self) -> bool:
        return not self.builds


_THREADS = WeakSet[Thread]()
_ENDING = Event()


@atexit.register
def _end_all() -> None:
    """What builds has its compilers ended by now, and tidies up."""
    _ENDING.set()
    until = time.monotonic() + PATIENCE
    for thread in list(_THREADS):
        if thread.ident is not None:
            thread.join(max(0.0, until - time.monotonic()))


def tell_tuned(program: object, hear: Hear) -> None:
    """Tells somebody of a program when it is tuned, which most are from the beginning."""
    if isinstance(program, QuickProgram):
        program.then(hear)
    elif isinstance(program, Executable):
        hear(program)


def _tune(which: ref[QuickProgram], build: Callable[[], Executable]) -> None:
    with BUILDING:
        if which() is None or _ENDING.is_set():
            return  # It has been forgotten, for others were wanted more lately.
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
