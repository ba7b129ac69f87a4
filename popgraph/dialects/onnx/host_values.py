"""Values that exist only in Python: strings, and arrays of Python objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from popgraph.support.arrays import Array


def plain(value: object) -> object:
    """Decodes bytes to str, within lists, tuples and arrays."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
        return objects(map(plain, value.reshape(-1)), value.shape)
    return value


def objects(elements: Any, shape: tuple[int, ...]) -> Array:
    """An object array; NumPy does not convert its elements."""
    held = list(elements)
    made = np.empty(len(held), object)
    made[:] = held
    return made.reshape(shape)


def holds_text(value: object) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "OSU"


def texts(value: Any) -> Array:
    """The strings of a tensor as str."""
    found = plain(np.asarray(value))
    assert isinstance(found, np.ndarray)
    return found
