"""Worker processes that run cases, so that a crash or timeout affects only one case."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from onnx.backend.base import Backend

from popgraph.conformance.cases import Case
from popgraph.conformance.outcome import Outcome, Status, outcome

METHOD = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
"""Forking avoids loading the cases again, which takes seconds."""


def serve(cases: Sequence[Case], backend: type[Backend], connection: Connection) -> None:
    """Runs cases by number until the parent sends None."""
    while (number := connection.recv()) is not None:
        connection.send(outcome(cases[number], backend))


class Worker:
    """A process, and the case that it runs."""

    def __init__(self, cases: Sequence[Case], backend: type[Backend], limit: float) -> None:
        context: Any = multiprocessing.get_context(METHOD)
        self.connection, theirs = context.Pipe()
        self._cases, self._limit = cases, limit
        self._process = context.Process(target=serve, args=(cases, backend, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._case: Case | None = None
        self._began = 0.0

    def begin(self, number: int) -> None:
        """Starts a case."""
        self._case, self._began = self._cases[number], time.monotonic()
        self.connection.send(number)

    def left(self) -> float:
        """Seconds until the timeout."""
        return max(0.0, self._began + self._limit - time.monotonic())

    def result(self) -> Outcome | None:
        """The outcome of its case, or None if it still runs. Ends the process on a timeout."""
        assert self._case is not None
        seconds = time.monotonic() - self._began
        if self.connection.poll():
            try:
                found: Outcome = self.connection.recv()
            except EOFError:
                return Outcome.of(self._case, Status.FAILED, self._death(), seconds)
            return found
        if self.left():
            return None
        self.end()
        reason = f"it takes longer than {self._limit:g} s"
        return Outcome.of(self._case, Status.FAILED, reason, seconds)

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
    waiting = iter(range(len(cases)))
    busy: list[Worker] = []
    try:
        for number in _first(waiting, jobs):
            busy.append(Worker(cases, backend, limit))
            busy[-1].begin(number)
        while busy:
            wait([worker.connection for worker in busy], min(worker.left() for worker in busy))
            for at, worker in reversed(list(enumerate(busy))):
                found = worker.result()
                if found is None:
                    continue
                yield found
                following = next(waiting, None)
                if following is None:
                    busy.pop(at).end()
                    continue
                if not worker.is_alive:
                    busy[at] = Worker(cases, backend, limit)
                busy[at].begin(following)
    finally:
        for worker in busy:
            worker.end()


def _first(numbers: Iterator[int], many: int) -> Iterator[int]:
    for _, number in zip(range(many), numbers, strict=False):
        yield number
