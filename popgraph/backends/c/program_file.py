"""How does a program stand in a file? A line of JSON, and memory to be mapped as it is."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from popgraph.backends.c.toolchain import digest
from popgraph.dialects.program.attributes import Array

MAGIC = "popgraph program 2"
ALIGNMENT = 64
BLOCK = 1 << 16
"""Bytes that one number of a checksum covers."""


def aligned(size: int) -> Array:
    """Memory at an address that vectors like."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def checksum(data: Array) -> str:
    """Tells damaged data at the speed of memory; `data` is contiguous."""
    whole = len(data) // BLOCK * BLOCK
    blocks = data[:whole].view(np.uint64).reshape(-1, BLOCK // 8)
    made = hashlib.sha256(np.add.reduce(blocks, axis=1).tobytes())
    made.update(data[whole:].tobytes())
    return made.hexdigest()


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


def read(file: IO[bytes]) -> tuple[dict[str, Any], list[Array]]:
    """Header and data, which is mapped and never copied; ValueError when they are damaged."""
    first, header = file.readline(), file.readline()
    if first.decode() != f"{MAGIC} {digest(header.decode().rstrip(chr(10)))}\n":
        raise ValueError("damaged header")
    content: dict[str, Any] = json.loads(header)
    mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    pieces, place = [], len(first) + len(header)
    for row in content["pieces"]:
        place += -place % ALIGNMENT
        piece: Array = mapped[place : place + row["bytes"]]
        if len(piece) != row["bytes"] or checksum(piece) != row["sum"]:
            raise ValueError("damaged data")
        pieces.append(piece)
        place += len(piece)
    return content, pieces


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
