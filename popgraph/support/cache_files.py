"""Cache files: content-based names, atomic writes, checksums, eviction."""

from __future__ import annotations

import hashlib
import shutil
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from popgraph.support.trust import make_private, open_trusted
from popgraph.support.writing import remove_orphans, write_atomically


def digest(*texts: str) -> str:
    """A collision-free file name for these texts."""
    made = hashlib.sha256()
    for text in texts:
        made.update(f"{len(text)}:{text}".encode())
    return made.hexdigest()


def write_cache_file(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Writes a file atomically."""
    make_private(path.parent)
    if path.is_dir():
        shutil.rmtree(path)
    write_atomically(path, chunks, mode=0o644)


def write_sealed(path: Path, content: bytes) -> None:
    """Writes a file with a trailing checksum, which linkers and loaders ignore."""
    write_cache_file(path, [content, _seal(content)])


def read_sealed(path: Path) -> bytes:
    """
    The content of a sealed file.

    OSError or ValueError if it is absent, damaged, or owned by another user.
    """
    with open_trusted(path) as file:
        found = file.read()
    content = found[: -len(_seal(b""))]
    if found != content + _seal(content):
        raise ValueError(f"{path} is damaged")
    return content


def is_sealed(path: Path) -> bool:
    """Whether the file exists and is intact."""
    with suppress(OSError, ValueError):
        read_sealed(path)
        return True
    return False


def _seal(content: bytes) -> bytes:
    return b"\npopgraph seal %08x\n" % zlib.crc32(content)


CALLS_PER_TRIM = 32
"""Interval of scans: one call of this many scans the thousands of files of a cache."""
_TIMES: Counter[Path] = Counter()


def trim_regularly(folder: Path, limit: int) -> None:
    """Trims a folder at every `CALLS_PER_TRIM`-th call."""
    if _TIMES[folder] % CALLS_PER_TRIM == 0:
        trim(folder, limit)
    _TIMES[folder] += 1


def trim(folder: Path, limit: int) -> None:
    """
    Removes the least recently used files of a folder until the rest fit.

    Partial files of killed processes are removed first.
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
    """(time of last use, size, path) of each file."""
    for path in folder.glob("*/*"):
        with suppress(OSError):
            state = path.stat()
            yield state.st_mtime_ns, state.st_size, path
