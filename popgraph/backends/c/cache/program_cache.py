"""The program cache: a cached program starts without passes or compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from popgraph.backends.c.cache import program_file
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.memory.pages import LARGE_PAGE, together
from popgraph.backends.c.memory.table import Literal, Slot, Table
from popgraph.backends.interface import Key
from popgraph.support import dtypes
from popgraph.support.arrays import Array, ArrayStore, SharedArrays, owned
from popgraph.support.cache_files import trim
from popgraph.support.debug import Settings
from popgraph.support.index_checks import IndexCheck
from popgraph.support.sizes import Size
from popgraph.support.tasks import Tasks
from popgraph.support.trust import open_trusted
from popgraph.support.warnings import KINDS, Notice

SWITCH = "POPGRAPH_PROGRAM_CACHE"
LIMIT = 4 << 30
"""Limit of the cached programs in bytes; the least recently used are evicted first."""


SAVES = Tasks()
"""The thread that writes files of programs, by key."""


def is_watched() -> bool:
    """Whether the cache is disabled, explicitly or because debug settings observe the passes."""
    return os.environ.get(SWITCH) == "0" or Settings.from_environment() != Settings()


@dataclass(frozen=True)
class Prepared:
    """The results of a program's `prepare`."""

    persistent: Array
    packings: Mapping[str, Array]
    """By key; other programs of the model may share them."""


@dataclass(frozen=True)
class Saved:
    """A program without the code in its library."""

    name: str
    library: str
    """The key of its library, see `compiling.library_key`."""
    table: Table
    prepared: Prepared | None
    """The results of `prepare`; without them, a start runs it, and needs the model's weights."""
    notices: Sequence[Notice] = ()
    """The notices that every start repeats to the user."""


@dataclass(frozen=True)
class ProgramKey(Key):
    """The key of a cached program, which can save and load it."""

    text: str = ""
    """The model's text; initial values of variables that it contains are not stored again."""

    def save(self, saved: Saved, weights: ArrayStore) -> None:
        """
        Stores a program for the next start; no effect if the cache cannot be written.

        A thread writes the file: its arrays do not change when the program runs. See `SAVES`.
        """
        first, *others = readable_caches()
        if others:
            return  # the cache is read-only
        SAVES.wait()  # The file that is written may be the home of some arrays.
        homes = weights.shared.homes
        found = dict(homes)  # Another thread may add to it.
        lost = {home for home in set(found.values()) if not _file(first, home).is_file()}
        written = _Written({key: home for key, home in found.items() if home not in lost})
        prepared, slots = saved.prepared, saved.table.slots
        rows = [self._describe(slot, prepared, weights, written) for slot in slots]
        header = {
            "key": self.digest,
            "name": saved.name,
            "library": saved.library,
            "arena": saved.table.arena,
            "persistent": saved.table.persistent,
            "prepared": prepared is not None,
            "checks": [asdict(check) for check in saved.table.checks],
            "donations": dict(saved.table.donations),
            "sizes": [asdict(size) for size in saved.table.sizes],
            "slots": rows,
            "places": written.places,
            "homes": written.elsewhere,
            "notices": [[one.kind.__name__, one.text] for one in saved.notices],
        }
        persistent = np.empty(0, np.uint8) if prepared is None else prepared.persistent
        path, pieces = _file(first, self.digest), [persistent, *written.arrays]

        def write() -> None:
            with suppress(OSError):
                program_file.write(path, header, pieces)
                homes.update(dict.fromkeys(written.places, self.digest))
                trim(first / "programs", LIMIT)

        SAVES.begin(self.digest, write)

    def is_kept(self) -> bool:
        """Whether the cache has a file for this key."""
        SAVES.wait(self.digest)
        return any(_file(cache, self.digest).is_file() for cache in readable_caches())

    def load(self, weights: ArrayStore) -> Saved | None:
        """The program of this key; None if it is missing or damaged."""
        SAVES.wait(self.digest)
        for cache in readable_caches():
            doubts = suppress(OSError, ValueError, KeyError, TypeError, IndexError)
            with doubts, ExitStack() as stack:
                return self._read(_Files(cache, self.digest, stack), weights)
        return None

    def _read(self, files: _Files, weights: ArrayStore) -> Saved:
        header, prepared = files.own.header, None
        slots = tuple(_slot(row, weights, files) for row in header["slots"])
        checks = tuple(map(_check, header["checks"]))
        donations = dict(header["donations"])
        sizes = tuple(map(Size.from_row, header["sizes"]))
        table = Table(slots, header["arena"], header["persistent"], checks, donations, sizes)
        if header["prepared"]:
            packings = _packings(table.packings, weights.shared, files)
            prepared = Prepared(files.own.piece(0), packings)
        notices = [Notice(KINDS[kind], text) for kind, text in header["notices"]]
        return Saved(header["name"], header["library"], table, prepared, notices)

    def _describe(
        self, slot: Slot, prepared: Prepared | None, weights: ArrayStore, written: _Written
    ) -> dict[str, Any]:
        """A slot as JSON; adds its array to `written`."""
        literal = None
        if prepared is None:
            literal = self._literal(slot, weights, written, is_kept=False)
        elif slot.space == "packing":
            written.add(slot.label, prepared.packings[slot.label])
        elif not slot.prepared:
            literal = self._literal(slot, weights, written, is_kept=slot.space == "constant")
        return {
            "space": slot.space,
            "label": slot.label,
            "dtype": None if slot.dtype is None else slot.dtype.name,
            "shape": slot.shape,
            "prepared": slot.prepared,
            "sources": slot.sources,
            "literal": literal,
        }

    def _literal(
        self, slot: Slot, weights: ArrayStore, written: _Written, *, is_kept: bool
    ) -> dict[str, Any] | None:
        """A literal as JSON; its array is stored if `is_kept`, or if the model lacks it."""
        literal = slot.literal
        if literal is None:
            return None
        row: dict[str, Any] = {"dtype": literal.dtype.name, "shape": literal.shape}
        if not literal.key:
            return row | {"inline": literal.data.hex()}
        row["key"] = literal.key
        if is_kept or literal.key not in self.text:
            row["kept"] = True
            shared = weights.shared.get(literal.key)
            # The file of a view may change while a thread writes; large views have been copied.
            written.add(literal.key, owned(literal.array(weights)) if shared is None else shared)
        return row


class _Written:
    """The arrays to write to a file, and the arrays that other files contain already."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes
        self.arrays: list[Array] = []
        self.places: dict[str, int] = {}
        """The piece of each array; piece 0 is the persistent memory, which is not shared."""
        self.elsewhere: dict[str, str] = {}
        """The program whose file contains an array."""

    def add(self, key: str, array: Array) -> None:
        if key in self._homes:
            self.elsewhere[key] = self._homes[key]
        elif key not in self.places:
            self.arrays.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            self.places[key] = len(self.arrays)


class _Files:
    """The file of a program in a cache, and the other programs' files with some of its arrays."""

    def __init__(self, cache: Path, key: str, stack: ExitStack) -> None:
        self._cache, self._stack = cache, stack
        self._opened: dict[str, program_file.ProgramFile] = {}
        self.own = self._open(key)

    def array(self, key: str, into: Array | None = None) -> Array:
        """The bytes of an array; KeyError if its file does not contain it any more."""
        home = self.own.header["homes"].get(key)
        file = self.own if home is None else self._open(home)
        return file.piece(file.header["places"][key], into)

    def _open(self, key: str) -> program_file.ProgramFile:
        if key not in self._opened:
            path = _file(self._cache, key)
            opened = program_file.ProgramFile(self._stack.enter_context(open_trusted(path)))
            if opened.header["key"] != key:
                raise ValueError("another program's file")
            with suppress(OSError):
                os.utime(path)
            self._opened[key] = opened
        return self._opened[key]


def _packings(sizes: Mapping[str, int], shared: SharedArrays, files: _Files) -> dict[str, Array]:
    """The packings: shared with loaded programs if possible, else read from files."""
    held = {key: shared.get(key) for key in sizes}
    found = {key: array for key, array in held.items() if array is not None}
    read = together({key: size for key, size in sizes.items() if key not in found})
    return found | {
        key: shared.share(key, files.array(key, memory)) for key, memory in read.items()
    }


def _slot(row: dict[str, Any], weights: ArrayStore, files: _Files) -> Slot:
    """The inverse of `_describe`; the slot's literal is added to `weights`."""
    dtype = None if row["dtype"] is None else dtypes.BY_NAME[row["dtype"]]
    shape, sources = tuple(row["shape"]), tuple(row["sources"])
    slot = Slot(row["space"], row["label"], dtype, shape, None, row["prepared"], sources)
    literal = row["literal"]
    return slot if literal is None else replace(slot, literal=_literal(literal, weights, files))


def _check(row: dict[str, Any]) -> IndexCheck:
    return IndexCheck(**row | {"low": tuple(row["low"]), "last": tuple(row["last"])})


def _literal(row: dict[str, Any], weights: ArrayStore, files: _Files) -> Literal:
    dtype, shape = dtypes.BY_NAME[row["dtype"]], tuple(row["shape"])
    if "inline" in row:
        return Literal(dtype, shape, data=bytes.fromhex(row["inline"]))
    key = row["key"]
    if "kept" in row:
        held = weights.shared.get(key)
        if held is None:
            read = files.array(key).view(dtype.numpy).reshape(shape)
            held = weights.shared.share(key, read) if read.nbytes >= LARGE_PAGE else read
        weights.hold(key, held)
    if key not in weights:
        raise KeyError("the model does not bring this weight")
    return Literal(dtype, shape, key=key)


def _file(cache: Path, key: str) -> Path:
    return cache / "programs" / key[:2] / key
