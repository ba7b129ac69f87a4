"""The file format of cached programs: a JSON header and a memory image with checksums."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from popgraph.backends.c.memory.pages import ALIGNMENT, LARGE_PAGE, aligned
from popgraph.support.arrays import Array
from popgraph.support.cache_files import digest, write_whole

MAGIC = "popgraph program 3"
BLOCK = 1 << 16
"""Bytes that one number of a checksum covers."""
STEP = 4 * BLOCK
"""Bytes that stay in a near cache from when they are read until they are summed."""


def checksum(data: Array) -> str:
    """Tells damaged data at the speed of memory; `data` is contiguous."""
    return _checksum([data])


def _checksum(parts: Iterable[Array]) -> str:
    """The checksum of data in parts, all but the last of whole blocks."""
    sums, rest = hashlib.sha256(), b""
    for part in parts:
        whole = len(part) // BLOCK * BLOCK
        blocks = part[:whole].view(np.uint64).reshape(-1, BLOCK // 8)
        sums.update(np.add.reduce(blocks, axis=1).tobytes())
        rest = part[whole:].tobytes()
    sums.update(rest)
    return sums.hexdigest()


def write(path: Path, about: dict[str, Any], pieces: Sequence[Array]) -> None:
    """Magic and checksum, header, data; the file is there when it is whole."""
    rows = [{"bytes": len(piece), "sum": checksum(piece)} for piece in pieces]
    header = json.dumps(about | {"pieces": rows})
    write_whole(path, _content(f"{MAGIC} {digest(header)}\n{header}\n".encode(), pieces))


def _content(head: bytes, pieces: Sequence[Array]) -> Iterator[bytes | memoryview]:
    yield head
    place = len(head)
    for piece in pieces:
        yield bytes(-place % ALIGNMENT)
        yield piece.data
        place += -place % ALIGNMENT + len(piece)


def read(file: IO[bytes]) -> tuple[dict[str, Any], list[Array]]:
    """
    Header and data; ValueError when they are damaged.

    Small pieces are mapped and never copied. Large ones are read into memory with large pages,
    which files do not have.
    """
    first, header = file.readline(), file.readline()
    if first.decode() != f"{MAGIC} {digest(header.decode().rstrip(chr(10)))}\n":
        raise ValueError("damaged header")
    content: dict[str, Any] = json.loads(header)
    mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    pieces, place = [], len(first) + len(header)
    for row in content["pieces"]:
        place += -place % ALIGNMENT
        piece: Array = mapped[place : place + row["bytes"]]
        if len(piece) != row["bytes"]:
            raise ValueError("data is missing")
        if len(piece) >= LARGE_PAGE:
            piece = aligned(len(piece))
            found = _checksum(_read_into(piece, file, place))
        else:
            found = checksum(piece)
        if found != row["sum"]:
            raise ValueError("damaged data")
        pieces.append(piece)
        place += len(piece)
    return content, pieces


def _read_into(piece: Array, file: IO[bytes], place: int) -> Iterator[Array]:
    """Fills a piece with what stands at a place of a file; what is there already, part by part."""
    file.seek(place)
    for start in range(0, len(piece), STEP):
        part = piece[start : start + STEP]
        if file.readinto(part.data) != len(part):  # type: ignore[attr-defined]
            raise ValueError("data is missing")
        yield part
