"""How are files of a cache named, written and removed?"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def digest(*texts: str) -> str:
    """A name for these texts that no others have."""
    made = hashlib.sha256()
    for text in texts:
        made.update(f"{len(text)}:{text}".encode())
    return made.hexdigest()


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """A file that others see when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix="partial-")
    try:
        with open(handle, "wb") as file:
            file.writelines(parts)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def trim(folder: Path, limit: int) -> None:
    """Removes the files of a folder that were not used for longest, until the rest fit."""
    total = 0
    for _, size, path in sorted(_uses(folder), reverse=True):
        total += size
        if total > limit:
            with suppress(OSError):
                path.unlink()


def _uses(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """When each file was used last, and its size."""
    for path in folder.glob("*/*"):
        with suppress(OSError):
            state = path.stat()
            yield state.st_mtime_ns, state.st_size, path
