"""The world: the communicator of this process, that of its MPI job if it is part of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.ranks.communicator import ALL_REDUCE, Alone, Communicator, Exchange
from popgraph.support.ranks.launched import is_launched
from popgraph.support.ranks.over_mpi import OverMpi

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
            _world = OverMpi()
        else:
            _world = Alone()
    return _world


@contextmanager
def acting_as(communicator: Communicator) -> Iterator[None]:
    """Makes another communicator that of this process for a while."""
    global _world
    before, _world = _world, communicator
    try:
        yield
    finally:
        _world = before


@contextmanager
def ending_together() -> Iterator[None]:
    """
    Ends all ranks where this one exits with an error: the others would wait for it.

    On all but the first nothing that is printed appears.
    """
    here = world()
    if not here.is_first:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (as long as the process)
    try:
        yield
    except SystemExit as error:
        if here.size > 1 and error.code not in (None, 0):
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            here.abort(error.code if isinstance(error.code, int) else 1)
        raise


def exchanged(exchange: Exchange, x: Array, when: Array | None) -> Array:
    """What a rank gets, if anything is told."""
    if when is None or when.reshape(-1)[0]:
        return world().exchange(exchange, x)
    if exchange.kind == ALL_REDUCE:
        return x.copy()
    return np.zeros(exchange.result_size(x.size), x.dtype)
