"""The identity of a C compiler, from the files that its command runs."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from popgraph.support.cache_files import digest

WRAPPERS = ("ccache", "sccache", "distcc", "icecc")
"""Programs that run the next compiler on the path whose name they are called by."""


def identity(command: Sequence[str]) -> str:
    """Changes with the command, and when one of its files is another, or another version."""
    facts: list[object] = [tuple(command)]
    for file in _files(command):
        with suppress(OSError):
            state = file.stat()
            facts += [str(file), state.st_size, state.st_mtime_ns]
    return digest(repr(facts))[:16]


def _files(command: Sequence[str]) -> Iterator[Path]:
    """`ccache gcc` is two programs, `python -m ziglang cc` is Python and what the module brings."""
    for before, word in zip(("", *command), command, strict=False):
        if before == "-m":
            yield from _of_module(word)
        elif not word.startswith("-"):
            yield from _of_program(word)


def _of_program(word: str) -> Iterator[Path]:
    """The program that a word means, and the one that it stands before."""
    found = shutil.which(word)
    if found is None:
        return
    first = Path(found).resolve()
    yield first
    if first.name not in WRAPPERS or Path(word).name in WRAPPERS:
        return
    others = (shutil.which(Path(word).name, path=folder) for folder in os.get_exec_path())
    yield from (Path(one).resolve() for one in others if one and Path(one).resolve() != first)


def _of_module(name: str) -> Iterator[Path]:
    """The beginning of a module of Python, and the programs that lie beside it."""
    with suppress(ImportError, ValueError, OSError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin)
            beside = sorted(Path(spec.origin).parent.iterdir())
            yield from (one for one in beside if one.is_file() and os.access(one, os.X_OK))
