"""The object cache: each kernel is compiled once for all programs that use it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from popgraph.backends.c.print.unit import Kernel, Unit
from popgraph.support.cache_files import (
    digest,
    is_sealed,
    read_sealed,
    trim_regularly,
    write_sealed,
)

LIMIT = 256 << 20
"""Limit of the cached objects in bytes."""


class Objects:
    """
    The cached objects of kernels, compiled with the same `build_key`.

    An object holds several kernels; a file per kernel names its object. New objects are stored in
    the last of the caches.
    """

    def __init__(self, caches: Sequence[Path], build_key: str) -> None:
        self._caches = [cache / "objects" for cache in caches]
        self._build_key = build_key
        self._is_sealed = functools.cache(is_sealed)

    def lacking(self, kernels: Iterable[Kernel]) -> tuple[list[Kernel], list[Path]]:
        """The kernels that are left to compile, and the cached objects of the others."""
        found = {kernel: self._find(kernel) for kernel in kernels}
        paths = (path for path in found.values() if path is not None)
        return [kernel for kernel in found if found[kernel] is None], [*dict.fromkeys(paths)]

    def keep(self, unit: Unit, compiled: Path) -> None:
        """Stores the object of a unit of kernels."""
        if not unit.kernels:
            return
        name = digest(self._build_key, unit.text)
        with suppress(OSError):
            write_sealed(self._file(f"{name}.o"), compiled.read_bytes())
            for _, kernel in unit.kernels:
                write_sealed(self._file(self._key(kernel)), name.encode())

    def remove(self, objects: Sequence[Path]) -> None:
        """Removes objects that cannot be linked."""
        for path in objects:
            with suppress(OSError):
                path.unlink()

    def trim(self) -> None:
        """Evicts the least recently used objects, once in some builds."""
        trim_regularly(self._caches[-1], LIMIT)

    def _find(self, kernel: Kernel) -> Path | None:
        for cache in self._caches:
            with suppress(OSError, ValueError):
                key = self._key(kernel)
                entry = cache / key[:2] / key
                name = read_sealed(entry).decode()
                path = cache / name[:2] / f"{name}.o"
                if self._is_sealed(path):
                    for used in (entry, path):
                        os.utime(used)
                    return path
        return None

    def _key(self, kernel: Kernel) -> str:
        return digest(self._build_key, kernel.text)

    def _file(self, name: str) -> Path:
        return self._caches[-1] / name[:2] / name
