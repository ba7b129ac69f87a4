"""The program cache: a compiled program starts again without passes or compiler."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from popgraph.backends.c.cache import program_file
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.memory.table import Literal, Slot, Table
from popgraph.support import dtypes
from popgraph.support.arrays import Array, ArrayStore
from popgraph.support.cache_files import trim
from popgraph.support.debug import Settings
from popgraph.support.index_checks import IndexCheck
from popgraph.support.trust import open_trusted
from popgraph.support.warnings import KINDS, Notice

SWITCH = "POPGRAPH_PROGRAM_CACHE"
LIMIT = 4 << 30
"""Bytes of programs that are kept; those that were not used for longest go first."""


def is_watched() -> bool:
    """Whether the cache is switched off, or somebody wants to see the passes at work."""
    return os.environ.get(SWITCH) == "0" or Settings.from_environment() != Settings()


@dataclass(frozen=True)
class Saved:
    """All that a program is, but for the code in its library."""

    name: str
    library: str
    """The key of its library, see `compiling.library_key`."""
    table: Table
    persistent: Array
    notices: Sequence[Notice] = ()
    """What every start tells the user of the model."""


@dataclass(frozen=True)
class ProgramKey:
    """What a program is found by: everything that its compilation depends on."""

    digest: str
    text: str = ""
    """The model; first values of variables that it names are not stored a second time."""

    def save(self, saved: Saved, weights: ArrayStore) -> None:
        """Keeps a program for the next start; a cache that cannot be written stays as it is."""
        first, *others = readable_caches()
        if others:
            return  # the cache is read-only
        pieces = [saved.persistent]
        slots = [self._describe(slot, weights, pieces) for slot in saved.table.slots]
        header = {
            "key": self.digest,
            "name": saved.name,
            "library": saved.library,
            "arena": saved.table.arena,
            "checks": [asdict(check) for check in saved.table.checks],
            "donations": dict(saved.table.donations),
            "slots": slots,
            "notices": [[one.kind.__name__, one.text] for one in saved.notices],
        }
        with suppress(OSError):
            program_file.write(_file(first, self.digest), header, pieces)
            trim(first / "programs", LIMIT)

    def is_kept(self) -> bool:
        """Whether there is a file for it."""
        return any(_file(cache, self.digest).is_file() for cache in readable_caches())

    def load(self, weights: ArrayStore) -> Saved | None:
        """The program of this key; None when there is none, or any doubt about it."""
        for cache in readable_caches():
            path = _file(cache, self.digest)
            with (
                suppress(OSError, ValueError, KeyError, TypeError, IndexError),
                open_trusted(path) as file,
            ):
                found = self._read(file, weights)
                with suppress(OSError):
                    os.utime(path)
                return found
        return None

    def _read(self, file: IO[bytes], weights: ArrayStore) -> Saved:
        header, pieces = program_file.read(file)
        if header["key"] != self.digest:
            raise ValueError("another program's file")
        slots = tuple(_slot(row, weights, pieces) for row in header["slots"])
        checks = tuple(map(_check, header["checks"]))
        table = Table(slots, header["arena"], len(pieces[0]), checks, dict(header["donations"]))
        notices = [Notice(KINDS[kind], text) for kind, text in header["notices"]]
        return Saved(header["name"], header["library"], table, pieces[0], notices)

    def _describe(self, slot: Slot, weights: ArrayStore, pieces: list[Array]) -> dict[str, Any]:
        """A slot as JSON; what passes computed for it is added to the pieces."""
        return {
            "space": slot.space,
            "label": slot.label,
            "dtype": None if slot.dtype is None else slot.dtype.name,
            "shape": slot.shape,
            "prepared": slot.prepared,
            "literal": None if slot.prepared else self._literal(slot, weights, pieces),
        }

    def _literal(
        self, slot: Slot, weights: ArrayStore, pieces: list[Array]
    ) -> dict[str, Any] | None:
        literal = slot.literal
        if literal is None:
            return None
        row: dict[str, Any] = {"dtype": literal.dtype.name, "shape": literal.shape}
        if not literal.key:
            return row | {"inline": literal.data.hex()}
        row["key"] = literal.key
        if slot.space == "constant" or literal.key not in self.text:
            row["piece"] = len(pieces)
            array = np.ascontiguousarray(literal.array(weights))
            pieces.append(array.reshape(-1).view(np.uint8))
        return row


def _slot(row: dict[str, Any], weights: ArrayStore, pieces: Sequence[Array]) -> Slot:
    """The slot that `_describe` described; its literal is in `weights` then."""
    dtype = None if row["dtype"] is None else dtypes.BY_NAME[row["dtype"]]
    slot = Slot(row["space"], row["label"], dtype, tuple(row["shape"]), None, row["prepared"])
    literal = row["literal"]
    return slot if literal is None else replace(slot, literal=_literal(literal, weights, pieces))


def _check(row: dict[str, Any]) -> IndexCheck:
    return IndexCheck(**row | {"low": tuple(row["low"]), "last": tuple(row["last"])})


def _literal(row: dict[str, Any], weights: ArrayStore, pieces: Sequence[Array]) -> Literal:
    dtype, shape = dtypes.BY_NAME[row["dtype"]], tuple(row["shape"])
    if "inline" in row:
        return Literal(dtype, shape, data=bytes.fromhex(row["inline"]))
    if "piece" in row:
        weights.hold(row["key"], pieces[row["piece"]].view(dtype.numpy).reshape(shape))
    if row["key"] not in weights:
        raise KeyError("the model does not bring this weight")
    return Literal(dtype, shape, key=row["key"])


def _file(cache: Path, key: str) -> Path:
    return cache / "programs" / key[:2] / key
