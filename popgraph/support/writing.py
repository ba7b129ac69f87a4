"""Atomic file writes: whole or not at all, one file or several."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EACCES, EINVAL
from functools import cache
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

from popgraph.support.errors import WriteError

Parts: TypeAlias = Iterable[bytes | memoryview]
"""What stands in a file, piece by piece."""

OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")
"""Names of files that a process has open: nothing can take the place of these."""

A_DAY = 24 * 60 * 60
"""Seconds without a change after which no other machine is still writing a part."""


def write_file(path: str | Path, parts: Parts) -> None:
    """
    Writes a file that a user asked for; a WriteError says why it could not be written.

    What stood there is there until the new content is on the disk, and stays if anything goes
    wrong. The file keeps its mode, and a link to it stays a link. What is no plain file (a pipe, a
    terminal) is written to as it is.
    """
    write_files([(Path(path), parts)])


def write_text(path: str | Path, text: str) -> None:
    """Writes a text that a user asked for, as `write_file` does."""
    write_file(path, [text.encode()])


def write_files(files: Sequence[tuple[Path, Parts]]) -> None:
    """Writes files that belong together: none takes its place before all are on the disk."""
    with _staged(files) as staged:
        for (path, _), one in zip(files, staged, strict=True):
            with _told(path):
                one.commit()


def write_pair(
    path: Path, naming: Callable[[str], Parts], beside: Path, parts: Callable[[], Parts]
) -> None:
    """
    Writes a file that names another one beside it; whenever we are stopped, the two fit together.

    Where both were there, the first names a copy of the second until that has taken its place.
    """
    if not (path.exists() and beside.exists()):
        write_files([(beside, parts()), (path, naming(beside.name))])
        return
    spare = beside.with_name(f"{beside.stem}.{os.urandom(4).hex()}{beside.suffix}")
    steps = [(path, naming(spare.name)), (beside, parts()), (path, naming(beside.name))]
    with _staged(steps) as staged, _told(spare):
        _copy(staged[1], spare, parts)
        for one in staged:
            one.commit()
        spare.unlink()


def append_to(path: Path, content: bytes) -> None:
    """Adds data to the end of a file that may be too large to write anew; all of them, or none."""
    with _told(path), open(path, "ab") as file:
        size = file.tell()
        try:
            file.write(content)
            file.flush()
        except OSError:
            os.truncate(path, size)
            raise


def put(path: Path, parts: Parts, *, mode: int = 0o666, durable: bool = False) -> None:
    """
    A file of our own that others see when it is complete; OSError when it cannot be.

    Unless it is to be `durable`, nobody waits for the disk: a loss of power may take it.
    """
    staged = stage(path, parts, durable=durable, mode=mode)
    try:
        staged.commit()
    finally:
        staged.drop()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if not path.parent.is_dir():
            why = f"there is no folder {str(path.parent)!r}"
        elif path.is_dir():
            why = "it is a folder"
        raise WriteError(
            f"the file cannot be written: {why}",
            str(path),
            "what stood there before is there still" if path.is_file() else "",
        ) from error


@contextmanager
def _staged(files: Sequence[tuple[Path, Parts]]) -> Iterator[list[Staged]]:
    """The contents on the disk, beside the files that they become."""
    staged: list[Staged] = []
    try:
        for path, parts in files:
            with _told(path):
                staged.append(stage(path, parts, durable=True))
        yield staged
    finally:
        for one in staged:
            one.drop()


def _copy(staged: Staged, path: Path, parts: Callable[[], Parts]) -> None:
    """The content of a staged file under another name; it is one file where that can be."""
    try:
        os.link(staged.part or staged.place, path)
        _sync_folder(path.parent)
    except OSError:
        put(path, parts(), durable=True)


@dataclass
class Staged:
    """Content on its way to a file."""

    place: Path
    """The file that it becomes, links followed."""
    part: Path | None
    """The file beside that one where it waits; none if it has already arrived."""
    durable: bool
    lock: int = -1
    """A descriptor that is locked while the part has an owner: see `remove_orphans`."""

    def commit(self) -> None:
        if self.part is None:
            return
        self.part.replace(self.place)
        self._arrived()
        if self.durable:
            _sync_folder(self.place.parent)

    def drop(self) -> None:
        """Removes what has not arrived."""
        if self.part is not None:
            with suppress(OSError):
                self.part.unlink()
            self._arrived()

    def _arrived(self) -> None:
        self.part = None
        os.close(self.lock)


def stage(path: Path, parts: Parts, *, durable: bool, mode: int | None = None) -> Staged:
    """Writes content beside its file, or into what can only be written in place."""
    if "\0" in str(path):
        raise OSError(EINVAL, "a name has no NUL in it", str(path))
    if is_written_in_place(path):
        with open(path, "wb") as file:
            file.writelines(parts)
        return Staged(path, None, durable)
    place = Path(os.path.realpath(path))
    before = place.stat() if mode is None and place.exists() else None
    if before is not None and not os.access(place, os.W_OK):
        raise PermissionError(EACCES, "the file is write-protected", str(path))
    if durable:
        remove_orphans_of(place)
    if mode is None:
        mode = 0o666 if before is None else 0o600
    part, descriptor = _new_part(place, mode)
    # The lock belongs to the open file, whichever descriptor of it is the last to be closed.
    staged = Staged(place, part, durable, os.dup(descriptor))
    try:
        with open(descriptor, "wb") as file:
            file.writelines(parts)
            file.flush()
            if before is not None:
                _resemble(descriptor, before)
            if durable:
                os.fsync(descriptor)
    except BaseException:
        staged.drop()
        raise
    return staged


def _new_part(place: Path, mode: int) -> tuple[Path, int]:
    """A new file beside another one, open and locked."""
    while True:
        part = place.with_name(f".{_key(place)}.{_kernel()}.{os.urandom(8).hex()}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with suppress(OSError):  # A file system without locks: nobody else can lock it, either.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not part.exists():  # Between both calls it looked like an orphan to another process.
                os.close(descriptor)
                continue
        return part, descriptor


def _key(place: Path) -> str:
    """The parts of a file share this; its own name could leave no room for more characters."""
    return f"{crc32(os.fsencode(place.name)):08x}"


@cache
def _kernel() -> str:
    """Identifies the running kernel: all its processes, in containers too, see their locks."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        name = os.uname().nodename.encode()
    return f"{crc32(name):08x}"


def remove_orphans_of(path: Path) -> None:
    """Removes what killed processes left of their attempts to write this file."""
    place = Path(os.path.realpath(path))
    _remove_orphans(place.parent, _key(place))


def remove_orphans(folder: Path) -> None:
    """Removes what killed processes left of their attempts to write files of a folder."""
    _remove_orphans(folder, "*")


def _remove_orphans(folder: Path, key: str) -> None:
    with suppress(OSError):
        for part in folder.glob(f".{key}.*.*.part"):
            with suppress(OSError):
                _remove_orphan(part)


def _remove_orphan(part: Path) -> None:
    """
    Removes a part that no process is writing: the kernel frees the locks of those that die.

    On a shared folder, locks of other machines may be invisible: their parts have to be old.
    """
    descriptor = os.open(part, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = part.name.split(".")[2] == _kernel()
        if is_ours or time.time() - os.fstat(descriptor).st_mtime > A_DAY:
            part.unlink()
    finally:
        os.close(descriptor)


def is_written_in_place(path: Path) -> bool:
    """Whether this is the name of something else than a plain file, or of one yet to be made."""
    if os.path.abspath(path).startswith(OPEN_FILES):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _resemble(descriptor: int, before: os.stat_result) -> None:
    """Gives a file the owner and the mode of the one whose place it takes."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        for owner, group in ((-1, before.st_gid), (before.st_uid, -1)):
            with suppress(PermissionError):
                os.fchown(descriptor, owner, group)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _sync_folder(folder: Path) -> None:
    """That a file has taken its place is on the disk, too; some file systems cannot be asked."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replaceable(path: Path) -> bool:
    """Whether `write_file` could write this file, as far as permissions tell."""
    if is_written_in_place(path):
        return os.access(path, os.W_OK)
    place = Path(os.path.realpath(path))
    return os.access(place.parent, os.W_OK) and (not place.exists() or os.access(place, os.W_OK))
