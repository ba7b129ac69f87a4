"""The job that a program sees: all ranks, or its own process where ranks share its sessions."""

from __future__ import annotations

from popgraph.engine.shares import steps_are_split
from popgraph.support.ranks.communicator import Alone, Communicator
from popgraph.support.ranks.world import world


def job() -> Communicator:
    """With `--mpi` a program is one, of whose sessions ranks run parts."""
    return Alone() if steps_are_split() else world()
