"""The cache directory: its path, its trust checks, and its temporary replacement."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

import platformdirs

from popgraph.support.trust import (
    SHARED,
    distrust_reason,
    folder_distrust_reason,
    make_private,
    warn_once,
)

_given_up: dict[Path, str] = {}
"""Caches that this process does not use any more, with the reason."""


def cache_directory() -> Path:
    """The cache to write: `$POPGRAPH_CACHE_DIR`, the user's cache directory, or a temporary one."""
    path = _chosen()
    reason = _given_up.get(path) or _distrust(path) or refusal(path)
    return _instead(path, reason) if reason else path


def readable_caches() -> list[Path]:
    """The caches to read, the writable one last: the chosen one counts if it is trusted."""
    first, written = _chosen(), cache_directory()
    return [first, written] if written != first and not _distrust(first) else [written]


def give_up(reason: str) -> Path:
    """Replaces the chosen cache by a temporary one, after a write to it failed."""
    path = _chosen()
    return _instead(path, _given_up.setdefault(path, f"cannot be written ({reason})"))


def forget() -> None:
    """Resets the state of this module: caches that were given up are tried again."""
    _given_up.clear()
    _temporary.cache_clear()


def _chosen() -> Path:
    """The configured path; links are resolved once, so that the checked folder is the used one."""
    chosen = os.environ.get("POPGRAPH_CACHE_DIR")
    return Path(os.path.realpath(chosen or platformdirs.user_cache_dir("popgraph")))


def _distrust(path: Path) -> str:
    """The reason not to load code from a folder; empty if it is trusted or missing."""
    try:
        problem = distrust_reason(path.stat()) or folder_distrust_reason(path)
    except OSError:
        return ""
    hint = f"run `chmod -R go-w`, or set {SHARED}=1 to allow files of root"
    return f"is not used: {problem}, and cached code is run ({hint})" if problem else ""


def refusal(path: Path) -> str:
    """The reason why a folder cannot be written; empty if it can."""
    try:
        make_private(path)
        with tempfile.TemporaryFile(dir=path):
            return ""
    except (FileExistsError, NotADirectoryError):
        return "cannot be written (it is not a folder)"
    except OSError as error:
        return f"cannot be written ({error.strerror})"


def _instead(path: Path, reason: str) -> Path:
    warn_once(
        f"{path} {reason}: compiled kernels are kept for this process only "
        "(set POPGRAPH_CACHE_DIR to another directory)"
    )
    return _temporary()


@functools.cache
def _temporary() -> Path:
    """A directory for this process only."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix="popgraph-")))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
