"""Reads NumPy's .npy and .npz files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from popgraph.support.arrays import Array
from popgraph.support.reading import Unreadable, reading, size_of


def read_npy(path: Path, *, mapped: bool = False) -> Array:
    """The array of an .npy file."""
    if not size_of(path):
        raise Unreadable("the file is empty")
    with reading("it is no .npy file, or one of Python objects"):
        found = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        found.close()
        raise Unreadable("it is an .npz file, no .npy file")
    return found


def read_npz(path: Path, key: str) -> Array:
    """The array of that key in an .npz file; `KeyError` if there is none."""
    size_of(path)
    with reading("it is no .npz file, or a damaged one"):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise Unreadable("it is no .npz file")
    with archive:
        if key not in archive.files:
            raise KeyError(key)
        with reading(f"the array {key!r} in it is damaged"):
            found = archive[key]
            if not isinstance(found, np.ndarray):
                raise Unreadable(f"{key!r} in it is no array")
            return found
