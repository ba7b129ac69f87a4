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
from popgraph.support.cache_files import digest, write_cache_file

MAGIC = "popgraph program 7"
BLOCK = 1 << 16
"""Bytes per partial sum of a checksum."""
STEP = 4 * BLOCK
"""Bytes read at once: small enough to stay in a near cache until they are summed."""


def checksum(data: Array) -> str:
    """A checksum at memory speed: sums of blocks, hashed; `data` is contiguous."""
    return _checksum([data])


def _checksum(parts: Iterable[Array]) -> str:
    """The checksum of data in parts; all but the last consist of whole blocks."""
    sums, rest = hashlib.sha256(), b""
    for part in parts:
        whole = len(part) // BLOCK * BLOCK
        blocks = part[:whole].view(np.uint64).reshape(-1, BLOCK // 8)
        sums.update(np.add.reduce(blocks, axis=1).tobytes())
        rest = part[whole:].tobytes()
    sums.update(rest)
    return sums.hexdigest()


def write(path: Path, about: dict[str, Any], pieces: Sequence[Array]) -> None:
    """Writes magic and checksum, header and data atomically."""
    rows = [{"bytes": len(piece), "sum": checksum(piece)} for piece in pieces]
    header = json.dumps(about | {"pieces": rows})
    write_cache_file(path, _content(f"{MAGIC} {digest(header)}\n{header}\n".encode(), pieces))


def _content(head: bytes, pieces: Sequence[Array]) -> Iterator[bytes | memoryview]:
    yield head
    place = len(head)
    for piece in pieces:
        yield bytes(-place % ALIGNMENT)
        yield piece.data
        place += -place % ALIGNMENT + len(piece)


class ProgramFile:
    """An open program file; raises ValueError when damaged data are read."""

    def __init__(self, file: IO[bytes]) -> None:
        first, header = file.readline(), file.readline()
        if first.decode() != f"{MAGIC} {digest(header.decode().rstrip(chr(10)))}\n":
            raise ValueError("damaged header")
        self.header: dict[str, Any] = json.loads(header)
        self._file = file
        self._mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        self._places, place = list[int](), len(first) + len(header)
        for row in self.header["pieces"]:
            place += -place % ALIGNMENT
            self._places.append(place)
            place += row["bytes"]

    def piece(self, number: int, into: Array | None = None) -> Array:
        """
        Returns a piece.

        A small one is mapped without a copy. A large one is read into large pages, which mapped
        files lack. With `into`, the piece is read into the caller's memory.
        """
        place, row = self._places[number], self.header["pieces"][number]
        piece: Array = self._mapped[place : place + row["bytes"]]
        if len(piece) != row["bytes"] or (into is not None and len(into) != len(piece)):
            raise ValueError("data is missing")
        if into is None and len(piece) >= LARGE_PAGE:
            into = aligned(len(piece))
        if into is None:
            found = checksum(piece)
        else:
            piece = into
            found = _checksum(_read_into(piece, self._file, place))
        if found != row["sum"]:
            raise ValueError("damaged data")
        return piece


def _read_into(piece: Array, file: IO[bytes], place: int) -> Iterator[Array]:
    """Fills a piece from a position of a file; yields each part once it is read."""
    file.seek(place)
    for start in range(0, len(piece), STEP):
        part = piece[start : start + STEP]
        if file.readinto(part.data) != len(part):  # type: ignore[attr-defined]
            raise ValueError("data is missing")
        yield part
