"""Whether an MPI launcher started this process."""

from __future__ import annotations

import os

GRACE_SECONDS = 0.5
"""
Seconds for which all other ranks delay an error report.

The first rank often fails in the same way; it then reports the error and ends the job.
"""

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Environment variables with the number of processes, of Open MPI and of MPICH and its forks."""


def is_launched() -> bool:
    """Whether an MPI launcher started several processes, and this is one of them."""
    return any(os.environ.get(name, "1") not in ("", "1") for name in _SIZES)
