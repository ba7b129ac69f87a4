"""Exchanges of compiled programs: C calls back when one begins, and when it has to be finished."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.ranks.codes import exchange_of
from popgraph.support.ranks.communicator import Finish
from popgraph.support.ranks.world import world

_Begin = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
_End = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_BEGIN, _END = "popgraph_begin", "popgraph_end"
"""What `exchange.h` calls the pointers to these functions."""


class _Exchanges:
    """
    What programs of this process have begun and not finished, by where the result comes to.

    C knows no exceptions: the first one waits until the program has ended.
    """

    def __init__(self) -> None:
        self._begun: dict[int, Finish] = {}
        self._failure: BaseException | None = None
        self.begin, self.end = _Begin(self._begin), _End(self._end)

    def _begin(self, source: int, target: int, told: int, made: int, code: int) -> None:
        def begin() -> None:
            exchange, dtype = exchange_of(code)
            arrays = _memory(source, told, dtype.numpy), _memory(target, made, dtype.numpy)
            self._begun[target] = world().start(exchange, *arrays)

        self._guarded(begin)

    def _end(self, target: int) -> None:
        self._guarded(lambda: self._begun.pop(target, lambda: None)())

    def _guarded(self, work: Callable[[], None]) -> None:
        """After a failure nothing is told any more: what comes is wrong already."""
        if self._failure is not None:
            return
        try:
            work()
        except BaseException as error:
            self._failure = error

    def raise_failure(self) -> None:
        """Raises what went wrong while a program ran."""
        failure, self._failure = self._failure, None
        if failure is not None:
            self._begun.clear()
            raise failure


_EXCHANGES = _Exchanges()


def connect(library: ctypes.CDLL) -> bool:
    """Gives a library the functions that it calls; whether it calls any."""
    found = False
    for name, function in ((_BEGIN, _EXCHANGES.begin), (_END, _EXCHANGES.end)):
        try:
            pointer = ctypes.c_void_p.in_dll(library, name)
        except ValueError:
            continue
        pointer.value = ctypes.cast(function, ctypes.c_void_p).value
        found = True
    return found


def raise_failure() -> None:
    """Raises what went wrong in an exchange of the program that has just run."""
    _EXCHANGES.raise_failure()


def _memory(address: int, size: int, dtype: np.dtype[Any]) -> Array:
    """Memory of the program as a row of elements."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype)
