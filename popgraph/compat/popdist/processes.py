"""The job that a program sees: all ranks, or its own process where ranks share its sessions."""

from __future__ import annotations

from popgraph.popart.sessions.split import sessions_are_split
from popgraph.support.ranks.communicator import Alone, Communicator
from popgraph.support.ranks.world import world


def job() -> Communicator:
    """With `--mpi` a program is one, of whose sessions ranks run parts."""
    return Alone() if sessions_are_split() else world()
