"""Mailboxes between the stages of a pipeline, within a process or across ranks."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.ranks.communicator import Communicator, Finish
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class Edge:
    """A tensor that one stage computes and other stages read."""

    number: int
    dtype: DType
    shape: Shape
    source: int
    """The rank that computes the tensor."""
    readers: Mapping[int, int]
    """Number of stages that read the tensor, by rank."""
    room: int
    """Capacity: the most batches in flight while all stages keep pace."""


class GivenUpError(Exception):
    """Another stage has failed, so nothing more will arrive."""


class Mail:
    """Keeps each tensor until all stages of this rank have read it."""

    def __init__(self, ranks: Communicator) -> None:
        self._ranks = ranks
        self._changed = threading.Condition()
        self._held: dict[tuple[int, int], Array] = {}
        self._unread = Counter[tuple[int, int]]()
        self._waiting = Counter[int]()
        self._receiving: dict[int, threading.Lock] = {}
        self._sent: dict[tuple[int, int], deque[Finish]] = defaultdict(deque)
        """Sends in flight, by edge and rank."""
        self._given_up = False

    def put(self, edge: Edge, batch: int, array: Array) -> None:
        """Delivers a tensor to all readers; blocks while a reader is `room` batches late."""
        for rank in sorted(edge.readers.keys() - {self._ranks.rank}):
            under_way = self._sent[edge.number, rank]
            if len(under_way) >= edge.room:
                under_way.popleft()()
            under_way.append(self._ranks.send(array, rank, edge.number, self._is_wanted))
        if self._ranks.rank in edge.readers:
            with self._changed:
                self._wait(lambda: self._waiting[edge.number] < edge.room)
                self._hold(edge, batch, array)

    def take(self, edge: Edge, batch: int) -> Array:
        """Waits for the tensor of a batch and returns it."""
        key = (edge.number, batch)
        if edge.source != self._ranks.rank:
            self._receive(edge, batch)
        with self._changed:
            self._wait(lambda: key in self._held)
            array = self._held[key]
            self._unread[key] -= 1
            if not self._unread[key]:
                del self._held[key], self._unread[key]
                self._waiting[edge.number] -= 1
                self._changed.notify_all()
            return array

    def _receive(self, edge: Edge, batch: int) -> None:
        """
        The first reader on this rank receives the tensor; messages of an edge arrive in batch
        order.
        """
        with self._changed:
            receiving = self._receiving.setdefault(edge.number, threading.Lock())
        with receiving:
            if (edge.number, batch) in self._held:
                return
            array = np.empty(edge.shape, edge.dtype.numpy)
            self._ranks.receive(array, edge.source, edge.number, self._is_wanted)
            with self._changed:
                self._hold(edge, batch, array)

    def _hold(self, edge: Edge, batch: int, array: Array) -> None:
        key = (edge.number, batch)
        self._held[key], self._unread[key] = array, edge.readers[self._ranks.rank]
        self._waiting[edge.number] += 1
        self._changed.notify_all()

    def _is_wanted(self) -> bool:
        return not self._given_up

    def _wait(self, is_so: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._given_up or is_so())
        if self._given_up:
            raise GivenUpError

    def give_up(self) -> None:
        """Wakes all waiting stages with GivenUpError."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def finish(self) -> None:
        """Waits until all sends have completed."""
        for under_way in self._sent.values():
            for done in under_way:
                done()
