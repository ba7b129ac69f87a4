"""Whether a launcher of MPI started this process."""

from __future__ import annotations

import os

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Where Open MPI, MPICH and its relatives tell a process how many there are."""


def is_launched() -> bool:
    """Whether this process is one of several that a launcher of MPI started."""
    return any(os.environ.get(name, "1") not in ("", "1") for name in _SIZES)
