"""The world: the communicator of this process, that of its MPI job if it is part of one."""

from __future__ import annotations

import os
import sys

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.ranks.communicator import ALL_REDUCE, Alone, Communicator, Exchange
from popgraph.support.ranks.over_mpi import OverMpi

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Where Open MPI, MPICH and its relatives tell a process how many there are."""

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


def is_launched() -> bool:
    """Whether a launcher of MPI started this process as one of several."""
    return any(os.environ.get(name, "1") not in ("", "1") for name in _SIZES)


def exchanged(exchange: Exchange, x: Array, when: Array | None) -> Array:
    """What a rank gets, if anything is told."""
    if when is None or when.reshape(-1)[0]:
        return world().exchange(exchange, x)
    if exchange.kind == ALL_REDUCE:
        return x.copy()
    return np.zeros(exchange.result_size(x.size), x.dtype)
