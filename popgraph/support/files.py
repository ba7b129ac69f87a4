"""File states, which detect changes since a file was read."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from popgraph.support.errors import RunError

State: TypeAlias = tuple[int, ...]
"""Device, inode, size and times of a file, which change with its content."""

ABSENT: State = ()
"""The state of an absent file."""

SIZE = 2
"""Index of the size in a state."""

MODELS = (".onnx", ".pgraph", ".mlir", ".gguf")
"""Suffixes of model files."""

CONFIG = "config.json"
"""The configuration of a language model, in the folder with its weights."""

_WRITTEN = re.compile(
    r"\s*(#|@|\"|(graph|def|opset|import|let|train|function)\s+\w)|[^/]*(\s=\s|[{}])"
)
"""Beginnings of texts, or patterns on a line that occur in no file name."""

SETTLED = 2.0
"""Seconds after which a write must change the time stamp of a file: FAT stores even seconds."""


def is_language_model(path: Path) -> bool:
    """Whether this is a GGUF file, or the folder of a model with a configuration."""
    try:
        return path.suffix == ".gguf" or (path / CONFIG).is_file()
    except (OSError, ValueError):
        return False


def path_of(model: object) -> Path | None:
    """The path of a model given by file; None for a `.pgraph` text, even an incomplete one."""
    if isinstance(model, str) and is_text(model):
        return None
    return Path(model) if isinstance(model, str | Path) else None


def is_text(model: str) -> bool:
    """Whether this is a `.pgraph` text, possibly incomplete, and not a file name."""
    if "\n" in model or not model.strip() or re.search(r"\bgraph\s.*\{", model):
        return True
    named = Path(model).suffix in MODELS
    return not named and _WRITTEN.match(model) is not None


def resolved(path: Path) -> Path:
    """The resolved path; OSError for circular links or an invalid name."""
    try:
        return path.resolve()
    except (ValueError, RuntimeError) as error:
        raise OSError(str(error)) from error


def state_of(path: Path | str) -> State:
    """The state of a file; OSError if it is absent."""
    found = os.stat(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def state_or_absent(path: Path) -> State:
    """The state of a file; `ABSENT` if it does not or cannot exist."""
    try:
        return state_of(path)
    except (OSError, ValueError):
        return ABSENT


def is_settled(state: State) -> bool:
    """Whether any later write to the file would change its state."""
    if state == ABSENT:
        return True
    *_, modified, changed = state
    return time.time() - max(modified, changed) / 1e9 > SETTLED


def is_unchanged(files: Mapping[str, Sequence[int]]) -> bool:
    """Whether files still have these states."""
    return all(list(state_or_absent(Path(name))) == [*state] for name, state in files.items())


def changed(files: Iterable[str]) -> RunError:
    """The error for a call that needs a model file which has changed."""
    return RunError(
        "the model's file has changed since it was compiled, and has no program for this call yet",
        ", ".join(files),
        "compile it again: popgraph.compile(model)",
    )
