"""File states: detects whether a file has changed since it was read."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from popgraph.support.errors import RunError

State: TypeAlias = tuple[int, ...]
"""Device, inode, size and times of a file: another content is another state."""

ABSENT: State = ()
"""The state of a file that is not there."""

SIZE = 2
"""Which number of a state is the size."""

MODELS = (".onnx", ".pgraph", ".mlir")
"""What the names of models end in."""

_WRITTEN = re.compile(
    r"\s*(#|@|\"|(graph|def|opset|import|let|train|function)\s+\w)|[^/]*(\s=\s|[{}])"
)
"""How texts begin, or what one line of them holds and no name of a file."""

SETTLED = 2.0
"""Seconds after which a file system's clock has certainly moved on: a change shows."""


def path_of(model: object) -> Path | None:
    """Where the file is that a model is given by; a text, as far as it may be written, is none."""
    if isinstance(model, str) and is_text(model):
        return None
    return Path(model) if isinstance(model, str | Path) else None


def is_text(model: str) -> bool:
    """Whether this is a `.pgraph` text, perhaps an unfinished one, and not the name of a file."""
    if "\n" in model or not model.strip() or re.search(r"\bgraph\s.*\{", model):
        return True
    named = Path(model).suffix in MODELS
    return not named and _WRITTEN.match(model) is not None


def resolved(path: Path) -> Path:
    """Where a path leads; OSError when it leads nowhere: links in a circle, no name at all."""
    try:
        return path.resolve()
    except (ValueError, RuntimeError) as error:
        raise OSError(str(error)) from error


def state_of(path: Path | str) -> State:
    """The state of a file; OSError when there is none."""
    found = os.stat(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def seen(path: Path) -> State:
    """The state of a file that may be absent; where there can be none, there is none."""
    try:
        return state_of(path)
    except (OSError, ValueError):
        return ABSENT


def is_settled(state: State) -> bool:
    """Whether a file of this state cannot get another content without another state."""
    if state == ABSENT:
        return True
    *_, modified, changed = state
    return time.time() - max(modified, changed) / 1e9 > SETTLED


def is_unchanged(files: Mapping[str, Sequence[int]]) -> bool:
    """Whether files, by name, are still in these states."""
    return all(list(seen(Path(name))) == [*state] for name, state in files.items())


def changed(files: Iterable[str]) -> RunError:
    """What is said when a call needs something of a model's files that are others now."""
    return RunError(
        "the model's file has changed since it was compiled, and has no program for this call yet",
        ", ".join(files),
        "compile it again: popgraph.compile(model)",
    )
