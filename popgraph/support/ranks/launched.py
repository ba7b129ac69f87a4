"""Whether a launcher of MPI started this process."""

from __future__ import annotations

import os

GRACE_SECONDS = 0.5
"""So long the other ranks wait before they tell of an error: the first one may fail alike, and
ends the job then."""

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Where Open MPI, MPICH and its relatives tell a process how many there are."""


def is_launched() -> bool:
    """Whether this process is one of several that a launcher of MPI started."""
    return any(os.environ.get(name, "1") not in ("", "1") for name in _SIZES)
