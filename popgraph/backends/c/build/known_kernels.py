"""
The kernel cache: the C of each kernel, for all programs that have an equal operation.

With it are the decisions by which passes arrive at such an operation: how to schedule it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from popgraph.backends.c.cache import program_key
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.print.unit import Kernel as Text
from popgraph.dialects.tile.loops.known import Kernel
from popgraph.support import extensions
from popgraph.support.cache_files import digest, read_sealed, trim_regularly, write_sealed

MAGIC = "popgraph kernel 1"
LIMIT = 64 << 20
"""Bytes of C that are kept; a network of 150 kernels has about 1 MB."""
MOST_DECISIONS = 1 << 12
"""Decisions that are kept, 150 bytes each; GoogLeNet takes 60. All are read at once, in 5 ms."""
DECISIONS_LIMIT = 4 << 20
"""Bytes of the decisions of all versions."""


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
    recent: dict[str, str] = field(default_factory=dict)
    """The decisions that this compilation takes or finds, by key."""

    def decision(self, key: str) -> str | None:
        """The decision of a key; None if it is missing."""
        found = self._earlier.get(key)
        if found is not None:
            self.recent[key] = found
        return found

    def note_decision(self, key: str, decision: str) -> None:
        """Notes a new decision."""
        self.recent[key] = decision

    def find(self, key: str) -> Kernel | None:
        """The kernel of a key; None if it is missing or damaged."""
        for cache in self._caches:
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
        """Keeps the C of kernels that were noted, by their keys, and decisions."""
        cache, *others = readable_caches()
        if others:
            return  # the cache is read-only
        self._keep_decisions(cache)
        for key, text in texts:
            if key in self.noted:
                row = {"kernel": asdict(self.noted[key]), "text": asdict(text) | {"location": ""}}
                with suppress(OSError):
                    write_sealed(self._path(cache, key), json.dumps(row).encode())
        trim_regularly(cache / "kernel_texts", LIMIT)

    def _keep_decisions(self, cache: Path) -> None:
        if self.recent.items() <= self._earlier.items():
            return
        rows = self._decisions(cache)  # Other processes may have kept some by now.
        ordered = {key: row for key, row in rows.items() if key not in self.recent} | self.recent
        latest = dict(islice(ordered.items(), max(0, len(ordered) - MOST_DECISIONS), None))
        with suppress(OSError):
            write_sealed(self._decisions_path(cache), json.dumps(latest).encode())
        trim_regularly(cache / "decisions", DECISIONS_LIMIT)

    @cached_property
    def _caches(self) -> list[Path]:
        """Whether a cache can be trusted is looked up once a compilation, not for each kernel."""
        return readable_caches()

    @cached_property
    def _earlier(self) -> dict[str, str]:
        """The decisions of earlier compilations."""
        return {key: row for cache in self._caches for key, row in self._decisions(cache).items()}

    def _decisions(self, cache: Path) -> dict[str, str]:
        """The decisions in a cache, the latest at the end; none if they are damaged."""
        with suppress(OSError, ValueError):
            rows = json.loads(read_sealed(self._decisions_path(cache)))
            if isinstance(rows, dict) and all(isinstance(row, str) for row in rows.values()):
                return rows
        return {}

    def _decisions_path(self, cache: Path) -> Path:
        name = digest(MAGIC, self.version)
        return cache / "decisions" / name[:2] / name

    def _path(self, cache: Path, key: str) -> Path:
        name = digest(MAGIC, self.version, key)
        return cache / "kernel_texts" / name[:2] / name


def _text(row: Mapping[str, Any]) -> Text:
    return Text(**{**row, "numbers": tuple(row["numbers"]), "vectors": tuple(row["vectors"])})


def kernel_cache() -> KernelCache | None:
    """The cache of kernels; None where code may have changed since it was imported."""
    package, outside = program_key.sources(), extensions.key()
    return None if package is None or outside is None else KernelCache(digest(package, outside))
