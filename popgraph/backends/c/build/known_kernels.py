"""The kernel cache: the C of each kernel, for all programs that have an equal operation."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from popgraph.backends.c.cache import program_key
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.print.unit import Kernel as Text
from popgraph.dialects.tile.loops.known import Kernel
from popgraph.support import extensions
from popgraph.support.cache_files import digest, read_sealed, trim_now_and_then, write_sealed

MAGIC = "popgraph kernel 1"
LIMIT = 64 << 20
"""Bytes of C that are kept; a network of 150 kernels has about 1 MB."""


@dataclass(frozen=True)
class KernelCache:
    """
    The kernels of the caches on disk, and the new kernels of one compilation.

    A kernel is found by a key of its operation and target, and of all code of PopGraph. It is
    neither lowered nor printed a second time, in whatever model it is met.
    """

    version: str
    """The code that writes kernels."""
    texts: dict[str, Text] = field(default_factory=dict)
    """The C of the kernels that were found, by key."""
    noted: dict[str, Kernel] = field(default_factory=dict)
    """The kernels that are written, by key."""

    def find(self, key: str) -> Kernel | None:
        """The kernel of a key; None if it is missing or damaged."""
        for cache in readable_caches():
            path = self._path(cache, key)
            with suppress(OSError, ValueError, KeyError, TypeError):
                row = json.loads(read_sealed(path))
                kernel, text = Kernel(**row["kernel"]), _text(row["text"])
                with suppress(OSError):
                    os.utime(path)
                self.texts[key] = text
                return kernel
        return None

    def note(self, key: str, kernel: Kernel) -> None:
        """Notes a new kernel, whose C is printed later."""
        self.noted[key] = kernel

    def keep(self, texts: Iterable[tuple[str, Text]]) -> None:
        """Keeps the C of kernels that were noted, by their keys."""
        cache, *others = readable_caches()
        if others:
            return  # the cache is read-only
        for key, text in texts:
            if key in self.noted:
                row = {"kernel": asdict(self.noted[key]), "text": asdict(text) | {"location": ""}}
                with suppress(OSError):
                    write_sealed(self._path(cache, key), json.dumps(row).encode())
        trim_now_and_then(cache / "kernel_texts", LIMIT)

    def _path(self, cache: Path, key: str) -> Path:
        name = digest(MAGIC, self.version, key)
        return cache / "kernel_texts" / name[:2] / name


def _text(row: Mapping[str, Any]) -> Text:
    return Text(**{**row, "numbers": tuple(row["numbers"])})


def kernel_cache() -> KernelCache | None:
    """The cache of kernels; None where code may have changed since it was imported."""
    package, outside = program_key.sources(), extensions.key()
    return None if package is None or outside is None else KernelCache(digest(package, outside))
