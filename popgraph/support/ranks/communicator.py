"""The communicator between ranks, its implementation for one rank, and codes of exchanges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import numpy as np

from popgraph.support import dtypes
from popgraph.support.arrays import Array
from popgraph.support.dtypes import DType
from popgraph.support.errors import PopgraphError
from popgraph.support.replicas import grouped

Content = TypeVar("Content")

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = KINDS = ("all_reduce", "all_gather", "reduce_scatter")
"""
Kinds of exchanges.

Each rank of a group gets the combined array, the concatenation of all arrays, or its shard of the
combined array.
"""

COMBINED_BY: Mapping[str, np.ufunc] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}
"""{name: ufunc that combines the elements of several ranks}."""


class RankError(PopgraphError):
    """Ranks cannot cooperate: there are too few, they differ, or one has failed."""


@dataclass(frozen=True)
class Exchange:
    """
    A collective operation of the ranks of a group.

    A group has `size` ranks at distance `stride`.
    """

    kind: str
    stride: int
    size: int
    combine: str = "Add"

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.combine not in COMBINED_BY:
            raise ValueError(f"{self.kind} by {self.combine} is not an exchange")
        if min(self.stride, self.size) < 1:
            raise ValueError("a group needs a size and a stride of at least 1")

    def result_size(self, count: int) -> int:
        """The number of elements that a rank receives, given the number it sends."""
        if self.kind == ALL_GATHER:
            return count * self.size
        return count // self.size if self.kind == REDUCE_SCATTER else count

    def group_of(self, rank: int, ranks: int) -> list[int]:
        """The ranks of a rank's group."""
        if ranks % (self.stride * self.size):
            raise RankError(
                f"{ranks} ranks cannot form groups of {self.size} at distance {self.stride}"
            )
        return next(one for one in grouped(ranks, self.stride, self.size) if rank in one)


Finish = Callable[[], None]
"""Waits until a started exchange has filled its target."""


IsWanted = Callable[[], bool]
"""Whether to keep waiting for another rank."""


def always() -> bool:
    """Waits without limit."""
    return True


class Communicator(ABC):
    """
    Communication between ranks.

    All ranks call the same methods in the same order.
    """

    rank: int
    size: int

    @abstractmethod
    def start(self, exchange: Exchange, source: Array, target: Array) -> Finish:
        """
        Starts an exchange; neither array may be accessed before it is finished.

        Both are contiguous rows; an all-reduce may use the same memory for both.
        """

    @abstractmethod
    def send(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> Finish:
        """
        Starts sending an array, which must not change before it is sent.

        Arrays with the same number arrive in sending order. Not all ranks call this. The returned
        function waits while `is_wanted` holds.
        """

    @abstractmethod
    def receive(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> None:
        """Receives an array from another rank; waits while `is_wanted` holds."""

    @abstractmethod
    def broadcast(self, content: Content, root: int = 0) -> Content:
        """The content of rank `root`, on all ranks."""

    @abstractmethod
    def gather(self, content: Content) -> list[Content]:
        """The contents of all ranks in rank order, on all ranks."""

    @abstractmethod
    def barrier(self, *, patient: bool = False) -> None:
        """Waits for all ranks; a patient wait sleeps instead of spinning."""

    @abstractmethod
    def abort(self, code: int) -> NoReturn:
        """Ends all ranks at once."""

    def exchange(self, exchange: Exchange, source: Array) -> Array:
        """The result of an exchange for this rank."""
        row = np.ascontiguousarray(source).reshape(-1)
        target = np.empty(exchange.result_size(row.size), row.dtype)
        self.start(exchange, row, target)()
        return target

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and messages."""
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
        raise AssertionError("a single rank cannot send")

    def receive(self, array: Array, rank: int, number: int, is_wanted: IsWanted = always) -> None:
        raise AssertionError("a single rank cannot receive")

    def broadcast(self, content: Content, root: int = 0) -> Content:
        return content

    def gather(self, content: Content) -> list[Content]:
        return [content]

    def barrier(self, *, patient: bool = False) -> None:
        """Returns at once: a single rank waits for nobody."""

    def abort(self, code: int) -> NoReturn:
        raise SystemExit(code)


_COMBINED = tuple(COMBINED_BY)
_ELEMENTS = tuple(dtypes.BY_NAME)
_BASES = (len(KINDS), len(_COMBINED), len(_ELEMENTS), 2**24)


def exchange_code(exchange: Exchange, dtype: DType) -> int:
    """Encodes an exchange and its element type; strides are below 2^24."""
    digits = (
        KINDS.index(exchange.kind),
        _COMBINED.index(exchange.combine),
        _ELEMENTS.index(dtype.name),
        exchange.stride,
    )
    code = exchange.size
    for digit, base in zip(reversed(digits), reversed(_BASES), strict=True):
        code = code * base + digit
    return code


def exchange_of(code: int) -> tuple[Exchange, DType]:
    """Decodes an exchange and its element type."""
    digits = []
    for base in _BASES:
        code, digit = divmod(code, base)
        digits.append(digit)
    kind, combine, element, stride = digits
    exchange = Exchange(KINDS[kind], stride, code, _COMBINED[combine])
    return exchange, dtypes.BY_NAME[_ELEMENTS[element]]
