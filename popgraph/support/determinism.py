"""The choice between results that are the same on one machine, and everywhere."""

from __future__ import annotations

import os

from popgraph.support.errors import RunError

MACHINE, PORTABLE = "machine", "portable"
CHOICES = (MACHINE, PORTABLE)
VARIABLE = "POPGRAPH_DETERMINISM"


def wanted(choice: str = "") -> str:
    """A choice, else the one of the environment, else `MACHINE`."""
    found = choice or os.environ.get(VARIABLE, "").strip() or MACHINE
    if found not in CHOICES:
        raise RunError(
            f"unknown determinism {found!r}",
            "determinism" if choice else VARIABLE,
            f"{PORTABLE!r} gives the same bits everywhere, {MACHINE!r} on one machine, faster",
        )
    return found
