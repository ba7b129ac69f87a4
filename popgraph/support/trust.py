"""Trust in cache files: ownership and permission checks."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from typing import IO

SHARED = "POPGRAPH_SHARED_CACHE"
"""When it is 1, what belongs to root is believed, too: a cache that an administrator filled."""

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_trusted: set[Path] = set()
_warned: set[str] = set()


class UntrustedError(PermissionError):
    """A file is there that somebody else can have written."""


def objection(found: os.stat_result) -> str:
    """Why a file or folder of a cache is not to be believed; empty when it is."""
    owners = {os.geteuid(), 0} if os.environ.get(SHARED) == "1" else {os.geteuid()}
    if found.st_uid not in owners:
        return f"it belongs to user {found.st_uid}"
    return "others may write it" if found.st_mode & _WRITABLE else ""


def objection_to_folder(folder: Path) -> str:
    """Why what lies in a folder is not to be believed: it, or one above it, is another's."""
    if folder in _trusted:
        return ""
    problem = _may_be_changed(folder)
    if not problem and folder != folder.parent:
        problem = objection_to_folder(folder.parent)
    if not problem:
        _trusted.add(folder)
    return problem


def _may_be_changed(folder: Path) -> str:
    """Who else can put other files, or another folder, in the place of what this one holds."""
    found = folder.stat()
    if found.st_uid not in {os.geteuid(), 0, os.stat("/").st_uid}:
        return f"{folder} belongs to user {found.st_uid}"
    if found.st_mode & _WRITABLE and not found.st_mode & stat.S_ISVTX:
        return f"others may write {folder}"
    return ""


def open_trusted(path: Path) -> IO[bytes]:
    """A file of a cache, open; OSError when it is not there, or not to be believed."""
    file = path.open("rb")
    problem = objection(os.fstat(file.fileno())) or objection_to_folder(path.parent)
    if not problem:
        return file
    file.close()
    warn_once(f"{path} is not used: {problem}, and what a cache holds is run")
    raise UntrustedError(problem)


def warn_once(text: str) -> None:
    """Says something to whoever runs the process, the first time that it is to be said."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


def forget() -> None:
    """Folders are looked at anew, and warnings are given again, as in a new process."""
    _trusted.clear()
    _warned.clear()


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it that are missing, for this user alone."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(stat.S_IRWXU, exist_ok=True)
