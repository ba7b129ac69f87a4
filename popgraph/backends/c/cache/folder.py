"""The cache directory: where it is, whether it is trusted, and what replaces it if not."""

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
    make_private,
    objection,
    objection_to_folder,
    warn_once,
)

_given_up: dict[Path, str] = {}
"""Caches that this process writes no more, and why."""


def cache_directory() -> Path:
    """Where compiled kernels are kept: `$POPGRAPH_CACHE_DIR`, or the user's cache directory."""
    path = _chosen()
    reason = _given_up.get(path) or _distrust(path) or refusal(path)
    return _instead(path, reason) if reason else path


def readable_caches() -> list[Path]:
    """Where a build may be found: the chosen cache even if it is read-only, not if untrusted."""
    first, written = _chosen(), cache_directory()
    return [first, written] if written != first and not _distrust(first) else [written]


def give_up(reason: str) -> Path:
    """Another cache, for this process only, in place of the one that turned out to be of no use."""
    path = _chosen()
    return _instead(path, _given_up.setdefault(path, f"cannot be written ({reason})"))


def forget() -> None:
    """Caches that were given up are tried again, as in a new process."""
    _given_up.clear()
    _temporary.cache_clear()


def _chosen() -> Path:
    """Links are followed once, so that what was checked is what is used."""
    chosen = os.environ.get("POPGRAPH_CACHE_DIR")
    return Path(os.path.realpath(chosen or platformdirs.user_cache_dir("popgraph")))


def _distrust(path: Path) -> str:
    """Why code is not loaded from there; empty also when nothing is there."""
    try:
        problem = objection(path.stat()) or objection_to_folder(path)
    except OSError:
        return ""
    hint = f"`chmod -R go-w` mends it, {SHARED}=1 allows what belongs to root"
    return f"is not used: {problem}, and what a cache holds is run ({hint})" if problem else ""


def refusal(path: Path) -> str:
    """Why nothing can be kept there."""
    try:
        make_private(path)
        with tempfile.TemporaryFile(dir=path):
            return ""
    except (FileExistsError, NotADirectoryError):
        return "cannot be written (it is no folder)"
    except OSError as error:
        return f"cannot be written ({error.strerror})"


def _instead(path: Path, reason: str) -> Path:
    warn_once(
        f"{path} {reason}: compiled kernels are kept for this process only "
        "(POPGRAPH_CACHE_DIR names another directory)"
    )
    return _temporary()


@functools.cache
def _temporary() -> Path:
    """A directory for this process only."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix="popgraph-")))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
