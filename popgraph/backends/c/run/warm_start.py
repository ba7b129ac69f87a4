"""Warm start: the program that this very model file became last time, before anything is read."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from popgraph.backends.c.build.host import host_machine
from popgraph.backends.c.cache import install_fingerprint
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.cache.measured import measured_text
from popgraph.backends.c.cache.program_cache import ProgramKey, is_watched
from popgraph.backends.c.machine.key import machine
from popgraph.backends.c.run.executable import CExecutable, build_again
from popgraph.support.arrays import ArrayStore
from popgraph.support.cache_files import digest, read_sealed, trim, write_sealed
from popgraph.support.files import State, is_settled, seen, state_of

MAGIC = "popgraph shortcut 2"
LIMIT = 16 << 20
"""Bytes of shortcuts that are kept."""
PIPELINE = "popgraph.passes.pipeline"


def recall(
    model: object, options: object, threads: int, indices: str | None = None
) -> CExecutable | None:
    """The program of a file, if file, options, machine and this package are as they were."""
    if not isinstance(model, str | Path):
        return None
    # RuntimeError: a loop of links.
    with suppress(OSError, RuntimeError, ValueError, KeyError, TypeError):
        path = Path(model).resolve()
        key = _key(path, state_of(path), options, threads, indices)
        for cache in readable_caches() if key else ():
            file = _file(cache, key)
            if file.exists():
                return _follow(json.loads(read_sealed(file)), threads)
    return None


def _follow(found: dict[str, object], threads: int) -> CExecutable | None:
    files, program = found["files"], found["program"]
    if not isinstance(files, dict) or not isinstance(program, str):
        raise ValueError("no shortcut")
    for name, state in files.items():
        if list(seen(Path(name))) != state:
            return None
    return build_again(ProgramKey(program), ArrayStore(), threads)


def remember(
    model: object,
    options: object,
    threads: int,
    program: object,
    files: Mapping[Path, State],
    indices: str | None = None,
) -> None:
    """Keeps the way from a model's file to its program; `files` are all that were read."""
    if not isinstance(program, CExecutable) or program.key is None or not files:
        return
    if not isinstance(model, str | Path) or not all(map(is_settled, files.values())):
        return
    path = Path(model).resolve()
    key = _key(path, files[path], options, threads, indices) if path in files else ""
    first, *others = readable_caches()
    if not key or others:
        return  # this is not to be kept, or the cache is read-only
    rows = {str(name): state for name, state in files.items()}
    text = json.dumps({"program": program.key, "files": rows})
    with suppress(OSError):
        write_sealed(_file(first, key), text.encode())
        trim(first / "shortcuts", LIMIT)


def _key(
    path: Path, state: State, options: object, threads: int, indices: str | None = None
) -> str:
    """Of all that a file's program depends on; empty when nothing may be taken from the cache."""
    described, installed = repr(options), install_fingerprint.states()
    if is_watched() or installed is None or " at 0x" in described or not _own_passes():
        return ""
    environment = sorted(
        (name, value) for name, value in os.environ.items() if name.startswith("POPGRAPH_")
    )
    place = str(Path.cwd()) if path.suffix == ".pgraph" else ""  # Texts may search beside it.
    facts = (
        str(path),
        state,
        threads,
        indices,
        host_machine(),
        measured_text(),
        environment,
        place,
    )
    return digest(MAGIC, installed, machine(), described, repr(facts))


def _own_passes() -> bool:
    """Whether the pipeline is this package's: if nobody imported it, nobody changed it."""
    pipeline = sys.modules.get(PIPELINE)
    steps = () if pipeline is None else pipeline.PIPELINE
    return all(step.pass_class.__module__.startswith("popgraph.") for step in steps)


def _file(cache: Path, key: str) -> Path:
    return cache / "shortcuts" / key[:2] / key
