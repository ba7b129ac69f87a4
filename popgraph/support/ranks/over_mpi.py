"""The communicator over MPI, by mpi4py, with overlap of communication and computation."""

from __future__ import annotations

import atexit
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.ranks.communicator import (
    ALL_GATHER,
    ALL_REDUCE,
    COMBINED_BY,
    Communicator,
    Content,
    Exchange,
    Finish,
    IsWanted,
    RankError,
    always,
)
from popgraph.support.ranks.launched import GRACE_SECONDS

INSTALL = "pip install 'popgraph[mpi]' brings mpi4py and an Open MPI"
POLL_SECONDS = 1e-4
"""Seconds between progress calls: MPI only transfers the next piece within a call."""

PATIENT_SECONDS = 1e-2
"""Seconds between polls of a rank that waits while others work."""


def mpi() -> Any:
    """The module of mpi4py; RankError if it is not installed or finds no MPI."""
    try:
        return import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise RankError(
            f"this process is a rank of an MPI job, and mpi4py cannot be used: {error}",
            "mpi4py",
            INSTALL,
        ) from error


class MpiCommunicator(Communicator):
    """
    The ranks of an MPI job.

    A progress thread drives exchanges; without it they would stall between calls.
    """

    def __init__(self) -> None:
        self._mpi = mpi()
        self._world = self._mpi.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        if self._mpi.Query_thread() < self._mpi.THREAD_SERIALIZED:
            raise RankError(
                "this MPI does not support calls from several threads",
                "MPI_Init_thread",
                "leave mpi4py.rc.thread_level at its default, or use Open MPI or MPICH",
            )
        self._groups: dict[tuple[int, int], Any] = {(1, self.size): self._world.Dup()}
        self._direct = self._world.Dup()
        self._calls = threading.Lock()
        self._pending: list[_Pending] = []
        self._waiting = threading.Condition()
        self._progress_thread: threading.Thread | None = None
        sys.excepthook = self._failed
        atexit.register(self._end)

    # exchanges

    def start(self, exchange: Exchange, source: Array, target: Array) -> Finish:
        group = self._group(exchange)
        pending = self._started(self._call_of(exchange, group, source, target))
        return partial(self._finish, pending)

    def _started(self, start: Callable[[], Any], held: Array | None = None) -> _Pending:
        """Starts a transfer for the progress thread; keeps `held` alive until it is done."""
        with self._calls:
            pending = _Pending(start(), held)
        with self._waiting:
            self._pending.append(pending)
            self._waiting.notify()
        if self._progress_thread is None:
            self._progress_thread = threading.Thread(
                target=self._progress, daemon=True, name="popgraph-mpi"
            )
            self._progress_thread.start()
        return pending

    def _call_of(
        self, exchange: Exchange, group: Any, source: Array, target: Array
    ) -> Callable[[], Any]:
        mpi, bits = self._mpi, _as_numbers
        if exchange.kind == ALL_GATHER:
            return lambda: group.Iallgather(source.view(np.uint8), target.view(np.uint8))
        operation = self._operation(exchange.combine, source.dtype)
        if exchange.kind == ALL_REDUCE:
            own = mpi.IN_PLACE if source.ctypes.data == target.ctypes.data else bits(source)
            return lambda: group.Iallreduce(own, bits(target), operation)
        return lambda: group.Ireduce_scatter_block(bits(source), bits(target), operation)

    def _operation(self, combine: str, dtype: np.dtype[Any]) -> Any:
        """MPI's own operation, or NumPy's for element types that MPI lacks."""
        if (dtype.kind in "iuf" and dtype.itemsize > 2) or dtype.kind in "iu":
            names = {"Add": "SUM", "Mul": "PROD", "Min": "MIN", "Max": "MAX"}
            return getattr(self._mpi, names[combine])
        return _numpy_operation(combine, dtype)

    def _group(self, exchange: Exchange) -> Any:
        """The communicator of this rank's group; all ranks create theirs in the same order."""
        key = (exchange.stride, exchange.size)
        if key not in self._groups:
            members = exchange.group_of(self.rank, self.size)
            with self._calls:
                self._groups[key] = self._world.Split(members[0], members.index(self.rank))
        return self._groups[key]

    def _progress(self) -> None:
        """Drives pending transfers; the body of the progress thread."""
        while True:
            with self._waiting:
                while not self._pending:
                    self._waiting.wait()
            with self._calls:
                for one in list(self._pending):
                    one.test()
            with self._waiting:
                self._pending = [one for one in self._pending if not one.done]
                self._waiting.wait(POLL_SECONDS)

    def _finish(self, pending: _Pending) -> None:
        with self._calls:
            pending.wait()

    # from one to another

    def send(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> Finish:
        row = _as_bytes(np.ascontiguousarray(array))
        pending = self._started(lambda: self._direct.Isend(row, rank, number), row)
        return partial(self._poll, pending, POLL_SECONDS, is_wanted)

    def receive(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> None:
        with self._calls:
            arriving = _Pending(self._direct.Irecv(_as_bytes(array), rank, number))
        self._poll(arriving, POLL_SECONDS, is_wanted)

    def _poll(self, pending: _Pending, seconds: float, is_wanted: IsWanted = always) -> None:
        """Polls a transfer; meanwhile other threads may call MPI, on which its end may depend."""
        while not pending.done and is_wanted():
            with self._calls:
                pending.test()
            if not pending.done:
                time.sleep(seconds)

    # collectives of Python objects

    def broadcast(self, content: Content, root: int = 0) -> Content:
        with self._calls:
            found: Content = self._world.bcast(content, root)
            return found

    def gather(self, content: Content) -> list[Content]:
        with self._calls:
            found: list[Content] = self._world.allgather(content)
            return found

    def barrier(self, *, patient: bool = False) -> None:
        with self._calls:
            arrived = _Pending(self._world.Ibarrier())
        if patient:
            self._poll(arrived, PATIENT_SECONDS)
        self._finish(arrived)

    # the end

    def abort(self, code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        self._world.Abort(code)
        raise SystemExit(code)

    def _failed(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Ends all ranks after an unhandled error: they would wait for this one forever."""
        if not self.is_first:
            time.sleep(GRACE_SECONDS)
        traceback.print_exception(kind, error, trace)
        print(
            f"rank {self.rank} of {self.size} failed and ends the job: {error}",
            file=sys.stderr,
        )
        self.abort(1)

    def _end(self) -> None:
        """Finishes all transfers before exit."""
        for one in self._pending:
            self._finish(one)


class _Pending:
    """A transfer that was started; only one thread at a time calls its methods."""

    def __init__(self, request: Any, held: Array | None = None) -> None:
        self._request, self._held = request, held
        self.done = False

    def test(self) -> None:
        if not self.done and self._request.Test():
            self._end()

    def wait(self) -> None:
        if not self.done:
            self._request.Wait()
            self._end()

    def _end(self) -> None:
        self.done, self._held = True, None


def _as_numbers(array: Array) -> Array:
    """The array in a type that MPI supports; 16-bit floats as their bits."""
    return array if array.dtype.kind in "iuf" and array.dtype.itemsize > 2 else _bits(array)


def _as_bytes(array: Array) -> Array:
    """The bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


def _bits(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind not in "iu" else array


@cache
def _numpy_operation(combine: str, dtype: np.dtype[Any]) -> Any:
    """An MPI operation that calls NumPy."""
    function = COMBINED_BY[combine]

    def combined(source: Any, target: Any, _: Any) -> None:
        one, other = np.frombuffer(source, dtype), np.frombuffer(target, dtype)
        function(one, other, out=other)

    return mpi().Op.Create(combined, commute=True)
