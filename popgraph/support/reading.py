"""Reads untrusted files; every failure becomes one kind of error."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from popgraph.support.files import State, state_of
from popgraph.support.names import closest

MAX_STREAM_BYTES = 1 << 31
"""Maximum size of a stream without known size, as protobuf has no larger messages."""

MAX_COMPARED_NAMES = 1000
"""Maximum number of file names to compare with a misspelt one."""


class Unreadable(Exception):
    """A file that cannot be read, with the reason in one sentence."""


class Missing(Unreadable):
    """The file does not exist."""


class Outside(Unreadable):
    """The path leads out of the folder to which it is confined."""


def no_such_file(path: Path) -> str:
    """The message for a missing file or folder, with the closest existing name."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {str(folder)!r}"
    close = similar(path)
    return "there is no such file" + (f"; did you mean {str(close)!r}?" if close else "")


def similar(path: Path) -> Path | None:
    """The file in the same folder with the closest name, or with another suffix."""
    try:
        names = sorted(one.name for one in islice(path.parent.iterdir(), MAX_COMPARED_NAMES))
    except OSError:
        return None
    stems = {Path(name).stem: name for name in names}
    found = closest(path.name, names) or stems.get(path.name) or stems.get(path.stem)
    return path.parent / found if found else None


@contextmanager
def reading(otherwise: str = "it is damaged") -> Iterator[None]:
    """
    Turns every failure in the block into `Unreadable`, with the system's reason or `otherwise`.

    Decoders (of zip archives, NumPy's headers, JSON) fail in more ways than they document.
    """
    try:
        yield
    except Unreadable:
        raise
    except UnicodeEncodeError as error:
        raise Unreadable("its name is not text") from error
    except FileNotFoundError as error:
        raise Missing(no_such_file(Path(os.fsdecode(error.filename or "")))) from error
    except IsADirectoryError as error:
        raise Unreadable("it is a folder, not a file") from error
    except OSError as error:
        raise Unreadable(error.strerror or otherwise) from error
    except MemoryError as error:
        raise Unreadable("its size exceeds the memory") from error
    except Exception as error:
        nul = isinstance(error, ValueError) and "null byte" in str(error)
        raise Unreadable("its name contains a NUL" if nul else otherwise) from error


def path_inside(folder: Path, name: str) -> Path:
    """The path of a file in or below a folder; `Unreadable` if it leads outside."""
    with reading("its path is invalid"):
        home = folder.resolve()
        path = home / name  # Unresolved: the target of a link may change.
        if not name or os.path.isabs(name) or not path.resolve().is_relative_to(home):
            raise Outside(f"it is outside the folder {str(home)!r}")
        return path


def opened(path: Path) -> tuple[BinaryIO, State]:
    """(file, state before opening); folders and devices are refused."""
    with reading():
        state = state_of(path)
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise Unreadable("it is a folder, not a file")
        if stat.S_ISBLK(kind):
            raise Unreadable("it is a device")
        return path.open("rb"), state


def read_stream(file: BinaryIO) -> bytes:
    """The rest of a stream of unknown size, such as a pipe."""
    with reading():
        content = file.read(MAX_STREAM_BYTES + 1)
    if len(content) > MAX_STREAM_BYTES:
        raise Unreadable("it has no end")
    return content


def read_range(path: Path, offset: int, length: int) -> bytes:
    """Reads a byte range of a file."""
    file, _ = opened(path)
    with reading(), file:
        file.seek(offset)
        content = file.read(length)
    if len(content) != length:
        raise Unreadable(f"it ends before byte {offset + length}")
    return content


def size_of(path: Path) -> int:
    """The size of a regular file."""
    with reading():
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise Unreadable("it is a folder, not a file")
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is not a regular file")
        return found.st_size
