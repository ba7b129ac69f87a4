"""Files of caches: names, atomic writes, seals against damage, trimming."""

from __future__ import annotations

import hashlib
import shutil
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from popgraph.support.trust import make_private, open_trusted
from popgraph.support.writing import put, remove_orphans


def digest(*texts: str) -> str:
    """A name for these texts that no others have."""
    made = hashlib.sha256()
    for text in texts:
        made.update(f"{len(text)}:{text}".encode())
    return made.hexdigest()


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """A file that others see when it is complete."""
    make_private(path.parent)
    if path.is_dir():
        shutil.rmtree(path)
    put(path, parts, mode=0o644)


def write_sealed(path: Path, content: bytes) -> None:
    """A file that tells whether it is damaged; linkers and loaders ignore what is at its end."""
    write_whole(path, [content, _seal(content)])


def read_sealed(path: Path) -> bytes:
    """
    What was written there.

    OSError or ValueError when it is not there, not as it was, or another's.
    """
    with open_trusted(path) as file:
        found = file.read()
    content = found[: -len(_seal(b""))]
    if found != content + _seal(content):
        raise ValueError(f"{path} is damaged")
    return content


def is_sealed(path: Path) -> bool:
    """Whether the file is there, as it was written."""
    with suppress(OSError, ValueError):
        read_sealed(path)
        return True
    return False


def _seal(content: bytes) -> bytes:
    return b"\npopgraph seal %08x\n" % zlib.crc32(content)


EVERY = 32
"""Of so many times, the first looks through the thousands of files of a cache."""
_TIMES: Counter[Path] = Counter()


def trim_now_and_then(folder: Path, limit: int) -> None:
    """Trims a folder, behind some of the files that this process adds to it."""
    if _TIMES[folder] % EVERY == 0:
        trim(folder, limit)
    _TIMES[folder] += 1


def trim(folder: Path, limit: int) -> None:
    """
    Removes the files of a folder that were not used for longest, until the rest fit.

    What killed processes left half written goes first.
    """
    with suppress(OSError):
        for below in folder.iterdir():
            remove_orphans(below)
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
