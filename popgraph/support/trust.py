"""
Trust in cache files: ownership and permission checks.

On Windows, access control lists replace owners and modes, and nothing is checked: the default
cache is in the user's profile, which other users cannot write.
"""

from __future__ import annotations

import os
import stat
import sys
import warnings
from pathlib import Path
from typing import IO

SHARED = "POPGRAPH_SHARED_CACHE"
"""Set to 1 to also trust files of root, such as a cache filled by an administrator."""

WINDOWS = sys.platform == "win32"
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_trusted: set[Path] = set()
_warned: set[str] = set()


class UntrustedError(PermissionError):
    """Another user may have written the file."""


def distrust_reason(found: os.stat_result) -> str:
    """The reason to distrust a cache file or folder; "" if it is trusted."""
    if WINDOWS:
        return ""
    owners = {os.geteuid(), 0} if os.environ.get(SHARED) == "1" else {os.geteuid()}
    if found.st_uid not in owners:
        return f"it belongs to user {found.st_uid}"
    return "others may write it" if found.st_mode & _WRITABLE else ""


def folder_distrust_reason(folder: Path) -> str:
    """The reason to distrust a folder, which may be one of its parents; "" if it is trusted."""
    if folder in _trusted:
        return ""
    problem = _may_be_changed(folder)
    if not problem and folder != folder.parent:
        problem = folder_distrust_reason(folder.parent)
    if not problem:
        _trusted.add(folder)
    return problem


def _may_be_changed(folder: Path) -> str:
    """
    The reason why another user could replace the files of a folder, or the folder; "" if none can.
    """
    found = folder.stat()
    if WINDOWS:
        return ""
    if found.st_uid not in {os.geteuid(), 0, os.stat("/").st_uid}:
        return f"{folder} belongs to user {found.st_uid}"
    if found.st_mode & _WRITABLE and not found.st_mode & stat.S_ISVTX:
        return f"others may write {folder}"
    return ""


def open_trusted(path: Path) -> IO[bytes]:
    """Opens a cache file; OSError if it is absent or not trusted."""
    file = path.open("rb")
    problem = distrust_reason(os.fstat(file.fileno())) or folder_distrust_reason(path.parent)
    if not problem:
        return file
    file.close()
    warn_once(f"{path} is not used: {problem}, and what a cache holds is run")
    raise UntrustedError(problem)


def warn_once(text: str) -> None:
    """Warns once per process."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def forget() -> None:
    """Clears all recorded results and warnings, as in a new process."""
    _trusted.clear()
    _warned.clear()


def make_private(folder: Path) -> None:
    """Creates a folder and its missing parents with access for this user only."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(stat.S_IRWXU, exist_ok=True)
