"""How does Python call a compiled program? Two functions on a table of pointers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from popgraph.support.errors import BackendError

Entry = Callable[[int], None]
"""Takes the address of the table; the GIL is free while it runs."""


def load(path: Path, name: str) -> tuple[Entry, Entry]:
    """(`NAME_prepare`, `NAME_run`) of a library."""
    try:
        library = ctypes.CDLL(str(path))
        entries = library[f"{name}_prepare"], library[f"{name}_run"]
    except (OSError, AttributeError) as error:
        raise BackendError(
            f"the compiled library could not be loaded: {error}",
            str(path),
            "delete this file; it is compiled again when it is needed",
        ) from error
    for entry in entries:
        entry.argtypes = [ctypes.c_void_p]
        entry.restype = None
    return entries
