"""
The kernel cache: the C of each kernel, shared by all programs with an equal operation.

It also stores decisions of passes, such as schedules.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from popgraph.backends.c.cache import program_key
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.print.unit import Kernel as Text
from popgraph.dialects.tile.loops.known import Kernel
from popgraph.support import extensions
from popgraph.support.cache_files import digest, read_sealed, trim_regularly, write_sealed
from popgraph.support.memo import cached_property

MAGIC = "popgraph kernel 1"
LIMIT = 64 << 20
"""Limit of the cached C in bytes; a network of 150 kernels has about 1 MB."""
MOST_DECISIONS = 1 << 12
"""Limit of cached decisions, 150 bytes each; GoogLeNet has 60. All are read at once, in 5 ms."""
DECISIONS_LIMIT = 4 << 20
"""Limit of the decisions of all versions in bytes."""


@dataclass(frozen=True)
class KernelCache:
    """
    The kernels in the caches on disk, and the new kernels of one compilation.

    The key of a kernel covers its operation, the target and all code of PopGraph. A cached kernel
    is neither lowered nor printed again, in any model.
    """

    version: str
    """The fingerprint of the code that generates kernels."""
    texts: dict[str, Text] = field(default_factory=dict)
    """The C of the cached kernels that were used, by key."""
    noted: dict[str, Kernel] = field(default_factory=dict)
    """The new kernels, by key."""
    recent: dict[str, str] = field(default_factory=dict)
    """The decisions that this compilation made or used, by key."""

    def decision(self, key: str) -> str | None:
        """The decision of a key; None if it is missing."""
        found = self._earlier.get(key)
        if found is not None:
            self.recent[key] = found
        return found

    def note_decision(self, key: str, decision: str) -> None:
        """Records a new decision."""
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
        """Records a new kernel, whose C is printed later."""
        self.noted[key] = kernel

    def keep(self, texts: Iterable[tuple[str, Text]]) -> None:
        """Stores the C of new kernels by key, and the decisions."""
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
        rows = self._decisions(cache)  # Read again: other processes may have stored some.
        ordered = {key: row for key, row in rows.items() if key not in self.recent} | self.recent
        latest = dict(islice(ordered.items(), max(0, len(ordered) - MOST_DECISIONS), None))
        with suppress(OSError):
            write_sealed(self._decisions_path(cache), json.dumps(latest).encode())
        trim_regularly(cache / "decisions", DECISIONS_LIMIT)

    @cached_property
    def _caches(self) -> list[Path]:
        """The caches, whose trust is checked once per compilation, not per kernel."""
        return readable_caches()

    @cached_property
    def _earlier(self) -> dict[str, str]:
        """The decisions of earlier compilations."""
        return {key: row for cache in self._caches for key, row in self._decisions(cache).items()}

    def _decisions(self, cache: Path) -> dict[str, str]:
        """The decisions in a cache, latest last; none if the file is damaged."""
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
    """The kernel cache; None if code may have changed since it was imported."""
    package, outside = program_key.sources(), extensions.key()
    return None if package is None or outside is None else KernelCache(digest(package, outside))
