"""Warm start: finds the cached programs of a model file without reading the model."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from popgraph.backends.base import Executable
from popgraph.backends.c.build.host import host_machine
from popgraph.backends.c.cache import install_fingerprint
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.cache.measured import measured_text
from popgraph.backends.c.cache.program_cache import ProgramKey, is_watched
from popgraph.backends.c.machine.key import machine
from popgraph.backends.c.run.sized import load_cached
from popgraph.backends.interface import KnownCall, KnownModel, KnownProgram
from popgraph.support import extensions
from popgraph.support.arrays import ArrayStore, SharedArrays
from popgraph.support.cache_files import digest, read_sealed, trim_regularly, write_sealed
from popgraph.support.files import State, is_settled, path_of, state_of, state_or_absent
from popgraph.support.sizes import Size

MAGIC = "popgraph shortcut 8"
LIMIT = 16 << 20
"""Limit of the cached shortcuts in bytes."""
PIPELINE = "popgraph.passes.pipeline"
KEYS = "popgraph.backends.c.cache.program_key"
"""Imported on demand only: a warm start avoids importing xDSL."""


@dataclass(frozen=True)
class KeptModel(KnownModel):
    """A cached interface of an open model, with lookups of its programs."""

    key: str = ""
    """The key of its programs, together with a call's signature; empty: not cached."""
    shared: SharedArrays = field(default_factory=SharedArrays, compare=False)
    """The arrays that its programs share."""

    def recall(self, signature: object) -> Executable | None:
        program = self._found(signature).get("program")
        if not isinstance(program, str):
            return None
        return load_cached(ProgramKey(program), ArrayStore(shared=self.shared), self.threads)

    def undecided(self, signature: object) -> tuple[str, ...]:
        return tuple(self._found(signature).get("undecided", ()))

    def note_structural(self, signature: object, names: Sequence[str]) -> None:
        if self.key:
            _write(self._key(signature), {"undecided": names})

    def _found(self, signature: object) -> Mapping[str, Any]:
        if is_watched() or not self.key:
            return {}
        return _read(self._key(signature)) or {}

    def remember(self, signature: object, program: Executable) -> None:
        """Records the program of a signature, if both have a key."""
        if self.key and program.key is not None:
            _write(self._key(signature), {"program": program.key})

    def _key(self, signature: object) -> str:
        # The key knows the model's own file, but not its weight files and imports.
        files = sorted((name, tuple(state)) for name, state in self.files.items())
        return digest(self.key, repr(files), repr(signature), repr(_surroundings()))


def recall(
    model: object, options: object, threads: int, indices: str | None = None
) -> KnownProgram | KnownModel | None:
    """The cached result for a file, if file, options, machine and package are unchanged."""
    file = path_of(model)
    if file is None:
        return None
    # RuntimeError: a loop of links.
    with suppress(OSError, RuntimeError, ValueError, KeyError, TypeError):
        path = file.resolve()
        key = _key(path, state_of(path), options, threads, indices)
        found = _read(key) if key else None
        return None if found is None else _follow(found, key, threads)
    return None


def _follow(found: Mapping[str, Any], key: str, threads: int) -> KnownProgram | KnownModel | None:
    interface = {part: tuple(names) for part, names in found.get("interface", {}).items()}
    overridable = tuple(found.get("overridable", ()))
    known = KeptModel(threads, interface, dict(found["files"]), overridable, key)
    if not known.is_unchanged():
        return None
    if "program" not in found:
        return known
    program = load_cached(ProgramKey(found["program"]), ArrayStore(), threads)
    return None if program is None else KnownProgram(program, known.files, overridable)


def remember(
    model: object,
    options: object,
    threads: int,
    program: Executable,
    files: Mapping[Path, State],
    indices: str | None = None,
    overridable: Collection[str] = (),
) -> None:
    """Records the program of a model file; `files` are all files that were read."""
    if program.key is not None:
        key = _key_to_keep(model, options, threads, files, indices)
        names = sorted(overridable)
        _write(key, {"program": program.key, "files": _rows(files), "overridable": names})


def remember_open(
    model: object,
    options: object,
    threads: int,
    files: Mapping[Path, State],
    indices: str | None,
    interface: Mapping[str, tuple[Any, ...]],
    overridable: Collection[str] = (),
) -> KnownModel:
    """Records the interface of an open model, whose programs are found by signature."""
    key = _key_to_keep(model, options, threads, files, indices)
    rows, names = _rows(files), tuple(sorted(overridable))
    _write(key, {"interface": interface, "overridable": names, "files": rows})
    return KeptModel(threads, interface, rows, names, key)


def note_call(
    model: object,
    files: Mapping[Path, State],
    call: KnownCall,
    program: Executable,
) -> None:
    """Records the call that a file's program is for, only for display."""
    file = path_of(model)
    if file is None or is_watched():
        return
    path, package = file.resolve(), _package()
    if package is None or program.key is None or path not in files:
        return
    note = {
        "of": [str(path), list(files[path]), digest(package, machine())],
        "shapes": {name: list(shape) for name, shape in call.shapes.items()},
        "values": {name: np.asarray(value).tolist() for name, value in call.values.items()},
        "threads": call.threads,
        "sizes": [asdict(size) for size in call.sizes],
        "program": program.key,
    }
    _write(digest(MAGIC, "call", repr(note)), note)


def known_calls(model: Path) -> list[KnownCall]:
    """The calls of the current version of a file for which the cache has programs."""
    path, found = model.resolve(), list[KnownCall]()
    wanted = [str(path), list(state_or_absent(path)), digest(_package() or "", machine())]
    files = {file.name: file for cache in readable_caches() for file in _files_of(cache)}
    for file in files.values():
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            note = json.loads(read_sealed(file))
            if note.get("of") == wanted and ProgramKey(note["program"]).is_kept():
                sizes = tuple(map(Size.from_row, note["sizes"]))
                found.append(KnownCall(note["shapes"], note["values"], note["threads"], sizes))
    return sorted(found, key=repr)


def _package() -> str | None:
    """A hash of this package: programs of another version are not used."""
    found: str | None = import_module(KEYS).sources()
    return found


def _files_of(cache: Path) -> list[Path]:
    return sorted((cache / "shortcuts").glob("*/*"))


def _key_to_keep(
    model: object,
    options: object,
    threads: int,
    files: Mapping[Path, State],
    indices: str | None,
) -> str:
    """The key of a model file; empty if its programs must not be cached."""
    file = path_of(model)
    if not files or file is None or not all(map(is_settled, files.values())):
        return ""
    path = file.resolve()
    return _key(path, files[path], options, threads, indices) if path in files else ""


def _rows(files: Mapping[Path, State]) -> dict[str, State]:
    return {str(name): state for name, state in files.items()}


def _read(key: str) -> dict[str, Any] | None:
    """The shortcut of a key; None if it is missing or damaged."""
    with suppress(OSError, ValueError):
        for cache in readable_caches():
            file = _file(cache, key)
            if file.exists():
                found = json.loads(read_sealed(file))
                return found if isinstance(found, dict) else None
    return None


def _write(key: str, shortcut: Mapping[str, object]) -> None:
    """Stores a shortcut, if it has a key and the cache is writable."""
    first, *others = readable_caches()
    if not key or others:
        return
    with suppress(OSError):
        write_sealed(_file(first, key), json.dumps(shortcut).encode())
        trim_regularly(first / "shortcuts", LIMIT)


def _key(
    path: Path, state: State, options: object, threads: int, indices: str | None = None
) -> str:
    """The key of all that a file's program depends on; empty if the cache must not be used."""
    described, installed = repr(options), install_fingerprint.states()
    if is_watched() or installed is None or " at 0x" in described or not _own_code(options):
        return ""
    place = str(Path.cwd()) if path.suffix == ".pgraph" else ""  # Imports may search it.
    facts = (
        str(path),
        state,
        threads,
        indices,
        *_surroundings(),
        place,
    )
    return digest(MAGIC, installed, machine(), described, repr(facts))


def standing() -> tuple[object, ...]:
    """Everything that shortcuts depend on besides the model, the options and the code."""
    return (*_surroundings(), Path.cwd())


def _surroundings() -> tuple[object, ...]:
    """The environment that programs depend on: machine, measured schedules, variables."""
    environment = sorted(
        (name, value) for name, value in os.environ.items() if name.startswith("POPGRAPH_")
    )
    return host_machine(), measured_text(), environment


def _own_code(options: object) -> bool:
    """Whether only this package's code takes part; extensions may have changed."""
    pipeline = sys.modules.get(PIPELINE)  # A pipeline that is not imported is unchanged.
    steps = () if pipeline is None else pipeline.PIPELINE
    own = all(step.pass_class.__module__.startswith("popgraph.") for step in steps)
    return own and extensions.is_empty() and not getattr(options, "passes", ())


def _file(cache: Path, key: str) -> Path:
    return cache / "shortcuts" / key[:2] / key
