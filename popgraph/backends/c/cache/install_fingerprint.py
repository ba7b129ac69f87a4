"""The fingerprint of this installation: changes with every file of the package."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from popgraph.support.cache_files import digest
from popgraph.support.files import SIZE, State, state_of

PACKAGE = Path(__file__).parents[3]
KINDS = (".py", ".h", ".json", ".lark")
STANDS_ON = ("xdsl", "onnx", "numpy", "ml_dtypes", "lark")
"""The packages whose version may change what this one makes of a model."""
LOADING = 2.0
"""Seconds that importing this package may have taken before this file was reached."""

STARTED = time.time()


def files() -> dict[str, State] | None:
    """
    The files of this package by their place in it, with size and times.

    None when one was changed since it was imported, and when there are none, as in an archive.
    """
    found = dict(_files(str(PACKAGE)))
    return found if found and all(map(_is_old, found.values())) else None


def _is_old(state: State) -> bool:
    *_, modified, changed = state
    return max(modified, changed) / 1e9 < STARTED - LOADING


def _files(folder: str) -> Iterator[tuple[str, State]]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(names):
            if name.endswith(KINDS):
                path = os.path.join(where, name)
                yield path[len(folder) + 1 :], state_of(path)[SIZE:]


@functools.cache
def states() -> str | None:
    """A name for this very installation; None when there is any doubt that it is what runs."""
    found, others = files(), [_beginning(name) for name in STANDS_ON]
    if found is None or not all(other is not None and _is_old(other[1]) for other in others):
        return None
    return digest(str(PACKAGE), repr(found), repr(others))


def _beginning(name: str) -> tuple[str, State] | None:
    """The first file of another package: whoever installs another version writes it anew."""
    spec = find_spec(name)
    with suppress(OSError):
        if spec is not None and spec.origin is not None:
            return spec.origin, state_of(spec.origin)[SIZE:]
    return None
