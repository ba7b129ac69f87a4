"""The fingerprint of this installation, which changes with every file of the package."""

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
DEPENDENCIES = ("xdsl", "onnx", "numpy", "ml_dtypes", "lark")
"""The packages whose version may change compiled programs."""
LOADING = 2.0
"""Bound in seconds of the time from the first import of this package to this file's."""

STARTED = time.time()


def files() -> dict[str, State] | None:
    """
    The files of this package by relative path, with size and times.

    None if one may have changed since it was imported, or without files, as in an archive.
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
    """The fingerprint of the installation; None if the imported code may differ from it."""
    found, others = files(), [_first_file(name) for name in DEPENDENCIES]
    if found is None or not all(other is not None and _is_old(other[1]) for other in others):
        return None
    return digest(str(PACKAGE), repr(found), repr(others))


def _first_file(name: str) -> tuple[str, State] | None:
    """The first file of another package, which every installation rewrites."""
    spec = find_spec(name)
    with suppress(OSError):
        if spec is not None and spec.origin is not None:
            return spec.origin, state_of(spec.origin)[SIZE:]
    return None
