"""The world: the communicator of this process, that of its MPI job if it is part of one."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.ranks.communicator import ALL_REDUCE, Communicator, Exchange, SingleRank
from popgraph.support.ranks.launched import GRACE_SECONDS, is_launched
from popgraph.support.ranks.over_mpi import MpiCommunicator

_world: Communicator | None = None


def world() -> Communicator:
    """
    The communicator of this process.

    It is that of MPI where `mpirun` or its like started several processes, or where the program
    itself has imported `mpi4py.MPI`.
    """
    global _world
    if _world is None:
        if is_launched() or "mpi4py.MPI" in sys.modules:
            _world = MpiCommunicator()
        else:
            _world = SingleRank()
    return _world


@contextmanager
def using_communicator(communicator: Communicator) -> Iterator[None]:
    """Makes another communicator that of this process for a while."""
    global _world
    before, _world = _world, communicator
    try:
        yield
    finally:
        _world = before


class _DelayedStream(io.TextIOBase):
    """A stream whose first words wait until the first rank has had time to say the same."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._waits = stream, True

    def write(self, text: str) -> int:
        if self._waits and text:
            self._waits = False
            time.sleep(GRACE_SECONDS)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


@contextmanager
def ending_all_ranks() -> Iterator[None]:
    """
    Ends all ranks where this one exits with an error: the others would wait for it.

    On all but the first nothing that is printed appears, and errors a little later: what all ranks
    would say, the first one says.
    """
    here = world()
    if not here.is_first:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (as long as the process)
        sys.stderr = _DelayedStream(sys.stderr)
    try:
        yield
    except SystemExit as error:
        if here.size > 1 and error.code not in (None, 0):
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            here.abort(error.code if isinstance(error.code, int) else 1)
        raise


def exchange_if(exchange: Exchange, x: Array, when: Array | None) -> Array:
    """What a rank gets, if anything is told."""
    if when is None or when.reshape(-1)[0]:
        return world().exchange(exchange, x)
    if exchange.kind == ALL_REDUCE:
        return x.copy()
    return np.zeros(exchange.result_size(x.size), x.dtype)
