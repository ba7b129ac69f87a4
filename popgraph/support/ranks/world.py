"""The communicator of this process: that of its MPI job, or of a single rank."""

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

    Uses MPI if `mpirun` or a similar launcher started several processes, or if the program has
    imported `mpi4py.MPI`.
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
    """Replaces the communicator of this process inside the block."""
    global _world
    before, _world = _world, communicator
    try:
        yield
    finally:
        _world = before


class _DelayedStream(io.TextIOBase):
    """Delays the first write until the first rank has had time to report the same error."""

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
    Ends all ranks if this one exits with an error: the others would wait for it forever.

    Only the first rank prints to stdout; the others delay stderr, since the first rank usually
    reports the same errors.
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
    """The result of an exchange for this rank; if `when` is false, x (all-reduce) or zeros."""
    if when is None or when.reshape(-1)[0]:
        return world().exchange(exchange, x)
    if exchange.kind == ALL_REDUCE:
        return x.copy()
    return np.zeros(exchange.result_size(x.size), x.dtype)
