"""The communicator: what a rank can tell the others, and how a rank on its own does the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from popgraph.support.replicas import grouped

Content = TypeVar("Content")

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = KINDS = ("all_reduce", "all_gather", "reduce_scatter")
"""What becomes of the elements of a group's members: for each of them one array made of all, all
arrays one behind the other, or its share of the one array."""

COMBINED_BY: Mapping[str, np.ufunc] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}
"""How elements of several ranks become one."""


class RankError(PopgraphError):
    """Ranks cannot do together what was asked: they are too few, differ, or one has failed."""


@dataclass(frozen=True)
class Exchange:
    """
    What the ranks of a group tell each other.

    Groups have `size` ranks that are `stride` apart.
    """

    kind: str
    stride: int
    size: int
    combine: str = "Add"

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.combine not in COMBINED_BY:
            raise ValueError(f"{self.kind} by {self.combine} is no exchange")
        if min(self.stride, self.size) < 1:
            raise ValueError("groups have at least one rank, at least one apart")

    def result_size(self, count: int) -> int:
        """How many elements a rank gets for so many of its own."""
        if self.kind == ALL_GATHER:
            return count * self.size
        return count // self.size if self.kind == REDUCE_SCATTER else count

    def group_of(self, rank: int, ranks: int) -> list[int]:
        """The ranks of the group that a rank belongs to."""
        if ranks % (self.stride * self.size):
            raise RankError(
                f"{ranks} ranks cannot be taken in groups of {self.size} that are "
                f"{self.stride} apart"
            )
        return next(one for one in grouped(ranks, self.stride, self.size) if rank in one)


Finish = Callable[[], None]
"""Waits until an exchange that was started has filled its target."""


IsWanted = Callable[[], bool]
"""Whether it still makes sense to wait for another rank."""


def always() -> bool:
    """Of those who wait as long as it takes."""
    return True


class Communicator(ABC):
    """
    What a rank can tell the others.

    All ranks call the same methods in the same order.
    """

    rank: int
    size: int

    @abstractmethod
    def start(self, exchange: Exchange, source: Array, target: Array) -> Finish:
        """
        Starts an exchange; neither array may be touched before it is finished.

        Both are one row of elements; of an all-reduce they may be the same memory.
        """

    @abstractmethod
    def send(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> Finish:
        """
        Starts to tell another rank an array, which is not to be changed before it has left.

        Arrays of one number arrive in the order in which they were sent. Not all ranks call this.
        Who finishes it waits as long as it is wanted.
        """

    @abstractmethod
    def receive(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> None:
        """Waits, as long as it is wanted, for an array of another rank, which fills this one."""

    @abstractmethod
    def broadcast(self, content: Content, root: int = 0) -> Content:
        """What the rank `root` has, for all."""

    @abstractmethod
    def gather(self, content: Content) -> list[Content]:
        """What each rank has, for all, in their order."""

    @abstractmethod
    def barrier(self, *, patient: bool = False) -> None:
        """Waits for all ranks; patiently, it leaves the processor to others meanwhile."""

    @abstractmethod
    def abort(self, code: int) -> NoReturn:
        """Ends all ranks at once."""

    def exchange(self, exchange: Exchange, source: Array) -> Array:
        """What a rank gets of an exchange."""
        row = np.ascontiguousarray(source).reshape(-1)
        target = np.empty(exchange.result_size(row.size), row.dtype)
        self.start(exchange, row, target)()
        return target

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that writes files and tells people."""
        return self.rank == 0


class SingleRank(Communicator):
    """The communicator of a process that is the only rank."""

    rank, size = 0, 1

    def start(self, exchange: Exchange, source: Array, target: Array) -> Finish:
        exchange.group_of(0, 1)
        if target.ctypes.data != source.ctypes.data:
            np.copyto(target, source)
        return lambda: None

    def send(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> Finish:
        raise AssertionError("there is nobody to tell")

    def receive(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> None:
        raise AssertionError("there is nobody to wait for")

    def broadcast(self, content: Content, root: int = 0) -> Content:
        return content

    def gather(self, content: Content) -> list[Content]:
        return [content]

    def barrier(self, *, patient: bool = False) -> None:
        """There is nobody to wait for."""

    def abort(self, code: int) -> NoReturn:
        raise SystemExit(code)
