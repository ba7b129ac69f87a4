"""Ranks as threads of one process: a communicator for tests without MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import reduce
from queue import Queue
from typing import Any, NoReturn

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.ranks.communicator import (
    ALL_GATHER,
    ALL_REDUCE,
    COMBINED_BY,
    Communicator,
    Exchange,
    Finish,
    IsWanted,
    always,
)
from popgraph.support.ranks.world import using_communicator

PATIENCE = 60
"""Seconds before a rank gives up waiting for the others."""


class _Meeting:
    """The shared memory of all ranks, where each one publishes a value and reads all others."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=PATIENCE)
        self._slots: list[Any] = [None] * size
        self._posts: dict[tuple[int, int, int], Queue[Array]] = {}
        self._opening = threading.Lock()

    def post(self, source: int, target: int, number: int) -> Queue[Array]:
        """The queue of messages with this number from one rank to another."""
        with self._opening:
            return self._posts.setdefault((source, target, number), Queue())

    def all_gather(self, rank: int, content: Any) -> list[Any]:
        self._slots[rank] = content
        self._barrier.wait()
        found = list(self._slots)
        self._barrier.wait()
        return found

    def give_up(self) -> None:
        self._barrier.abort()


class Thread(Communicator):
    """A rank. An exchange writes its target only when it finishes, as asynchronous MPI may."""

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank, self.size, self._meeting = rank, size, meeting
        self.log: list[str] = []
        """Starts and finishes of exchanges, in order."""

    def start(self, exchange: Exchange, source: Array, target: Array) -> Finish:
        self.log.append(f"start {source.size}")
        sources = self._meeting.all_gather(self.rank, (exchange, source.copy()))
        assert all(one == exchange for one, _ in sources), "ranks start different exchanges"
        members = exchange.group_of(self.rank, self.size)
        rows = [sources[rank][1] for rank in members]
        target.view(np.uint8)[...] = 0xA5  # Poison: the result is not there before `finish`.

        def finish() -> None:
            self.log.append(f"finish {target.size}")
            target[...] = combined(exchange, rows, members.index(self.rank))

        return finish

    def send(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> Finish:
        self._meeting.post(self.rank, rank, number).put(array.copy())
        return lambda: None

    def receive(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> None:
        array[...] = self._meeting.post(rank, self.rank, number).get(timeout=PATIENCE)

    def broadcast(self, content: Any, root: int = 0) -> Any:
        return self._meeting.all_gather(self.rank, content)[root]

    def gather(self, content: Any) -> list[Any]:
        return self._meeting.all_gather(self.rank, content)

    def barrier(self, *, patient: bool = False) -> None:
        self._meeting.all_gather(self.rank, None)

    def abort(self, code: int) -> NoReturn:
        self._meeting.give_up()
        raise SystemExit(code)


def combined(exchange: Exchange, rows: list[Array], place: int) -> Array:
    """The NumPy result of an exchange for one member of its group."""
    if exchange.kind == ALL_GATHER:
        return np.concatenate(rows)
    whole = reduce(COMBINED_BY[exchange.combine], rows)
    return whole if exchange.kind == ALL_REDUCE else np.split(whole, exchange.size)[place]


class _OfThread(Communicator):
    """Forwards to the communicator of the calling thread."""

    def __init__(self) -> None:
        self.threads: dict[int, Thread] = {}

    def __getattribute__(self, name: str) -> Any:
        threads = object.__getattribute__(self, "threads")
        if name == "threads":
            return threads
        return getattr(threads[threading.get_ident()], name)

    start = send = receive = broadcast = gather = barrier = abort = None


def on_ranks(count: int, work: Callable[[Thread], Any]) -> list[Any]:
    """The result of `work` on each of `count` ranks; raises the first error of any rank."""
    meeting, shared = _Meeting(count), _OfThread()
    results: list[Any] = [None] * count
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        one = shared.threads[threading.get_ident()] = Thread(rank, count, meeting)
        try:
            results[rank] = work(one)
        except threading.BrokenBarrierError as error:
            errors.append(error)
        except BaseException as error:
            errors.insert(0, error)
            meeting.give_up()

    with using_communicator(shared):
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return results
