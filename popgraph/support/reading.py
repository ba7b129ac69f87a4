"""Reads untrusted files, with every failure as one error."""

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

MOST_OF_A_PIPE = 1 << 31
"""Bytes that are read of what has no size: protobuf holds no larger message."""

MOST_NAMES = 1000
"""Names of a folder that are looked at for the closest one."""


class Unreadable(Exception):
    """What is wrong with a file, in one sentence; a failure of whatever was to read it."""


class Missing(Unreadable):
    """There is no such file."""


class Outside(Unreadable):
    """A name that leads out of the folder in which it was to stand."""


def no_such(path: Path) -> str:
    """That there is no such file, or folder, and which name in it is the closest."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {str(folder)!r}"
    close = similar(path)
    return "there is no such file" + (f"; did you mean {str(close)!r}?" if close else "")


def similar(path: Path) -> Path | None:
    """The file beside this path whose name is the closest to it, or has another ending only."""
    try:
        names = sorted(one.name for one in islice(path.parent.iterdir(), MOST_NAMES))
    except OSError:
        return None
    stems = {Path(name).stem: name for name in names}
    found = closest(path.name, names) or stems.get(path.name) or stems.get(path.stem)
    return path.parent / found if found else None


@contextmanager
def reading(otherwise: str = "it is damaged") -> Iterator[None]:
    """
    Every failure inside becomes `Unreadable`: what the system says, or `otherwise`.

    Decoders (of zip archives, NumPy's headers, JSON) fail in more ways than they say.
    """
    try:
        yield
    except Unreadable:
        raise
    except UnicodeEncodeError as error:
        raise Unreadable("its name is no text") from error
    except FileNotFoundError as error:
        raise Missing(no_such(Path(os.fsdecode(error.filename or "")))) from error
    except IsADirectoryError as error:
        raise Unreadable("it is a folder, not a file") from error
    except OSError as error:
        raise Unreadable(error.strerror or otherwise) from error
    except MemoryError as error:
        raise Unreadable("it says that it holds more than there is memory for") from error
    except Exception as error:
        nul = isinstance(error, ValueError) and "null byte" in str(error)
        raise Unreadable("its name holds a NUL" if nul else otherwise) from error


def beside(folder: Path, name: str) -> Path:
    """The path of a file in a folder or below it, as it is named; `Unreadable` if it is none."""
    with reading("its name leads nowhere"):
        home = folder.resolve()
        path = home / name  # As it is named: a link may lead elsewhere one day.
        if not name or os.path.isabs(name) or not path.resolve().is_relative_to(home):
            raise Outside(f"it is outside the folder {str(home)!r}")
        return path


def opened(path: Path) -> tuple[BinaryIO, State]:
    """A file to be read from its beginning, and its state before that; no folder, no device."""
    with reading():
        state = state_of(path)
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            raise Unreadable("it is a folder, not a file")
        if stat.S_ISBLK(kind):
            raise Unreadable("it is a device")
        return path.open("rb"), state


def rest_of(file: BinaryIO) -> bytes:
    """What is left of a file, a pipe for example, that does not say how much there is."""
    with reading():
        content = file.read(MOST_OF_A_PIPE + 1)
    if len(content) > MOST_OF_A_PIPE:
        raise Unreadable("there is no end to it")
    return content


def part_of(path: Path, offset: int, length: int) -> bytes:
    """Some bytes of a file."""
    file, _ = opened(path)
    with reading(), file:
        file.seek(offset)
        content = file.read(length)
    if len(content) != length:
        raise Unreadable(f"it has no {length} bytes from {offset} on")
    return content


def size_of(path: Path) -> int:
    """The size of a plain file."""
    with reading():
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise Unreadable("it is a folder, not a file")
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is no plain file")
        return found.st_size
