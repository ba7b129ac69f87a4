"""The job that a program sees: all ranks, or its own process where ranks share its sessions."""

from __future__ import annotations

from popgraph.support.ranks.communicator import Alone, Communicator
from popgraph.support.ranks.world import world


def sessions_are_split() -> bool:
    """With `--mpi` a program is one, of whose sessions ranks run parts."""
    from popgraph.engine.shares import steps_are_split

    return steps_are_split()


def job() -> Communicator:
    return Alone() if sessions_are_split() else world()
