"""Worker processes that run cases, so that a crash or timeout affects only one case."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeAlias, TypeVar

from onnx.backend.base import Backend

from popgraph.conformance.cases import Case
from popgraph.conformance.outcome import Outcome, Status, outcome

T = TypeVar("T")

METHOD = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
"""Forking avoids loading the cases again, which takes seconds."""

Run: TypeAlias = Callable[[int], T]
"""Runs the case of a number."""


@dataclass(frozen=True)
class Ended:
    """A run without a result, after a crash or a timeout."""

    reason: str
    seconds: float


def serve(run: Run[Any], connection: Connection) -> None:
    """Runs cases by number until the parent sends None."""
    while (number := connection.recv()) is not None:
        connection.send(run(number))


class Worker(Generic[T]):
    """A process, and the number of the case that it runs."""

    def __init__(self, run: Run[T], limit: float) -> None:
        context: Any = multiprocessing.get_context(METHOD)
        self.connection, theirs = context.Pipe()
        self._limit = limit
        self._process = context.Process(target=serve, args=(run, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.number = -1
        self._began = 0.0

    def begin(self, number: int) -> None:
        """Starts a case."""
        self.number, self._began = number, time.monotonic()
        self.connection.send(number)

    def left(self) -> float:
        """Seconds until the timeout."""
        return max(0.0, self._began + self._limit - time.monotonic())

    def result(self) -> T | Ended | None:
        """The result of its case, or None if it still runs. Ends the process on a timeout."""
        seconds = time.monotonic() - self._began
        if self.connection.poll():
            try:
                found: T = self.connection.recv()
            except EOFError:
                return Ended(self._death(), seconds)
            return found
        if self.left():
            return None
        self.end()
        return Ended(f"it takes longer than {self._limit:g} s", seconds)

    def _death(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the process ended ({name})"

    @property
    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    def end(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def outcomes(
    cases: Sequence[Case], backend: type[Backend], jobs: int, limit: float
) -> Iterator[Outcome]:
    """Runs all cases in parallel; yields outcomes in order of completion."""
    run = partial(_outcome, cases, backend)
    for number, found in isolated(run, range(len(cases)), jobs, limit):
        if isinstance(found, Ended):
            yield Outcome.of(cases[number], Status.FAILED, found.reason, found.seconds)
        else:
            yield found


def _outcome(cases: Sequence[Case], backend: type[Backend], number: int) -> Outcome:
    return outcome(cases[number], backend)


def isolated(
    run: Run[T], numbers: Iterable[int], jobs: int, limit: float
) -> Iterator[tuple[int, T | Ended]]:
    """Runs numbered cases in processes; yields results in order of completion."""
    waiting = iter(numbers)
    busy: list[Worker[T]] = []
    try:
        for number in _first(waiting, jobs):
            busy.append(Worker(run, limit))
            busy[-1].begin(number)
        while busy:
            wait([worker.connection for worker in busy], min(worker.left() for worker in busy))
            for at, worker in reversed(list(enumerate(busy))):
                found = worker.result()
                if found is None:
                    continue
                yield worker.number, found
                following = next(waiting, None)
                if following is None:
                    busy.pop(at).end()
                    continue
                if not worker.is_alive:
                    busy[at] = Worker(run, limit)
                busy[at].begin(following)
    finally:
        for worker in busy:
            worker.end()


def _first(numbers: Iterator[int], many: int) -> Iterator[int]:
    for _, number in zip(range(many), numbers, strict=False):
        yield number
