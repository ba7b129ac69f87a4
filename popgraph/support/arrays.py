"""The array store: arrays by content key, loaded when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from mmap import mmap
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from popgraph.support.computed import Computed
from popgraph.support.dtypes import from_numpy
from popgraph.support.errors import ModelError
from popgraph.support.files import State
from popgraph.support.shapes import Shape

Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[Any]]


def random_array(
    generator: np.random.Generator, shape: Shape, dtype: np.dtype[np.generic], *, limit: int = 4
) -> Array:
    """Small exactly representable numbers: quarters for floats, integers in [0, limit]."""
    kind = from_numpy(dtype)
    if kind.name == "bool":
        return generator.integers(0, 2, shape).astype(np.bool_)
    if kind.is_integer:
        return generator.integers(0, limit, shape).astype(dtype)
    return (generator.integers(-8, 9, shape) / 4).astype(dtype)


def owned(array: Array) -> Array:
    """The array, copied if it is a view of a file."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return array.copy() if isinstance(base, mmap) else array


class SharedArrays:
    """Arrays shared by the programs of a model, held by weak references."""

    def __init__(self) -> None:
        self._arrays: WeakValueDictionary[str, Array] = WeakValueDictionary()
        self.homes: dict[str, str] = {}
        """{key of an array: key of the program whose file stores it}."""

    @property
    def is_empty(self) -> bool:
        """Whether no program holds an array."""
        return not self._arrays

    def get(self, key: str) -> Array | None:
        """The array of a key, if a program holds it."""
        return self._arrays.get(key)

    def share(self, key: str, array: Array) -> Array:
        """The array under a key: `array`, unless another thread was first."""
        return self._arrays.setdefault(key, array)


class ArrayStore:
    """Arrays by content key; a value may be a function that loads the array on demand."""

    def __init__(
        self, parent: ArrayStore | None = None, shared: SharedArrays | None = None
    ) -> None:
        """Missing keys are looked up in `parent`."""
        if shared is None:
            shared = SharedArrays() if parent is None else parent.shared
        self.shared: SharedArrays = shared
        self._arrays: dict[str, Array | Callable[[], Array]] = {}
        self._parent = parent
        self.files: dict[Path, State] = {} if parent is None else parent.files
        """The states of the model's files, taken before reading."""

    def hold(self, key: str, source: Array | Callable[[], Array]) -> None:
        """Stores an array, or a function that loads it, such as a file mapping."""
        if key not in self:
            self._arrays[key] = source

    def held(self, key: str, what: object) -> Array:
        """The array of a key, which must not be modified; an error mentions `what`."""
        found = self._arrays.get(key)
        if found is None and self._parent is not None:
            return self._parent.held(key, what)
        if found is None:
            raise ModelError(
                f"the weights of {what} are missing",
                f"blob {key[:12]}",
                "large tensors are not part of IR text; pass the original model",
            )
        if callable(found):
            found = self._arrays[key] = found()
        return found

    def own(self) -> None:
        """Copies views of the model's file, which others may overwrite."""
        for key, found in self._arrays.items():
            if not isinstance(found, Computed):
                self._arrays[key] = owned(found() if callable(found) else found)

    def __contains__(self, key: str) -> bool:
        return key in self._arrays or (self._parent is not None and key in self._parent)

    def __iter__(self) -> Iterator[str]:
        return chain(self._arrays, self._parent or ())
