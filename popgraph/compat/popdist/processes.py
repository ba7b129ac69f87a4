"""The job of a program: all ranks, or a single process if ranks split its sessions."""

from __future__ import annotations

from popgraph.support.ranks.communicator import Communicator, SingleRank
from popgraph.support.ranks.world import world


def sessions_are_split() -> bool:
    """Whether `--mpi` is set: the program is one, and ranks run parts of its sessions."""
    from popgraph.engine.shares import steps_are_split

    return steps_are_split()


def job() -> Communicator:
    return SingleRank() if sessions_are_split() else world()
