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
"""Compiler wrappers, which run the next program of their own name on the path."""


def identity(command: Sequence[str]) -> str:
    """A key that changes with the command, and with the path, size or time of its files."""
    facts: list[object] = [tuple(command)]
    for file in _files(command):
        with suppress(OSError):
            state = file.stat()
            facts += [str(file), state.st_size, state.st_mtime_ns]
    return digest(repr(facts))[:16]


def _files(command: Sequence[str]) -> Iterator[Path]:
    """The files of a command: `ccache gcc` has two, `python -m ziglang cc` has the module's."""
    for before, word in zip(("", *command), command, strict=False):
        if before == "-m":
            yield from _of_module(word)
        elif not word.startswith("-"):
            yield from _of_program(word)


def _of_program(word: str) -> Iterator[Path]:
    """The program of a word, and the compiler that it calls if it is a wrapper."""
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
    """The first file of a Python module, and the programs in its folder."""
    with suppress(ImportError, ValueError, OSError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin)
            beside = sorted(Path(spec.origin).parent.iterdir())
            yield from (one for one in beside if one.is_file() and os.access(one, os.X_OK))
