"""Exchanges between ranks in compiled programs, which C starts and finishes by callbacks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.ranks.communicator import Finish, exchange_of
from popgraph.support.ranks.world import world

_Begin = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
_End = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_BEGIN, _END = "popgraph_begin", "popgraph_end"
"""The names of the function pointers in `exchange.h`."""


class _Exchanges:
    """
    The unfinished exchanges of this process, by the address of the result.

    C has no exceptions, so the first one is kept until the program has ended.
    """

    def __init__(self) -> None:
        self._begun: dict[int, Finish] = {}
        self._failure: BaseException | None = None
        self.begin, self.end = _Begin(self._begin), _End(self._end)

    def _begin(self, source: int, target: int, sent: int, received: int, code: int) -> None:
        def begin() -> None:
            exchange, dtype = exchange_of(code)
            arrays = _memory(source, sent, dtype.numpy), _memory(target, received, dtype.numpy)
            self._begun[target] = world().start(exchange, *arrays)

        self._guarded(begin)

    def _end(self, target: int) -> None:
        self._guarded(lambda: self._begun.pop(target, lambda: None)())

    def _guarded(self, work: Callable[[], None]) -> None:
        """Runs a callback, unless an earlier one failed: its results would be wrong."""
        if self._failure is not None:
            return
        try:
            work()
        except BaseException as error:
            self._failure = error

    def raise_failure(self) -> None:
        """Raises the first exception since the last call."""
        failure, self._failure = self._failure, None
        if failure is not None:
            self._begun.clear()
            raise failure


_EXCHANGES = _Exchanges()


def connect(library: ctypes.CDLL) -> bool:
    """Sets a library's function pointers; returns whether it has any."""
    found = False
    for name, function in ((_BEGIN, _EXCHANGES.begin), (_END, _EXCHANGES.end)):
        try:
            pointer = ctypes.c_void_p.in_dll(library, name)
        except ValueError:
            continue
        pointer.value = ctypes.cast(function, ctypes.c_void_p).value
        found = True
    return found


def raising_failures(entry: Callable[[int], None]) -> Callable[[int], None]:
    """The entry of a program that exchanges data; it raises the exception of a failed exchange."""

    def run(memory: int) -> None:
        entry(memory)
        _EXCHANGES.raise_failure()

    return run


def _memory(address: int, size: int, dtype: np.dtype[Any]) -> Array:
    """Memory of the program as a flat array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype)
