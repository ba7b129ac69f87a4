"""Atomic file writes of one file or several."""

from __future__ import annotations

import os
import platform
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EACCES, EDQUOT, EFBIG, EINVAL, ENOSPC
from functools import cache
from pathlib import Path
from typing import TypeAlias
from zlib import crc32

from popgraph.support import file_locks
from popgraph.support.errors import WriteError

WINDOWS = sys.platform == "win32"

Chunks: TypeAlias = Iterable[bytes | memoryview]
"""The content of a file, in chunks."""

OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")
"""Paths of open files, which cannot be replaced."""

BINARY: int = getattr(os, "O_BINARY", 0)
"""Without this flag, Windows translates the ends of lines."""

NO_ROOM = (ENOSPC, EDQUOT, EFBIG)
"""The errors of a full disk, a used up quota and a limit of the size of files."""

ORPHAN_SECONDS = 24 * 60 * 60
"""Seconds without a change after which no other machine is still writing a partial file."""


def write_file(path: str | Path, chunks: Chunks) -> None:
    """
    Writes a file that a user requested; WriteError if it fails.

    The old content stays until the new one is on the disk, and stays if anything fails. The file
    keeps its mode, and links remain links. Pipes, terminals and other special files are written in
    place.
    """
    write_files([(Path(path), chunks)])


def write_text(path: str | Path, text: str) -> None:
    """Writes a text by `write_file`."""
    write_file(path, [text.encode()])


def write_files(files: Sequence[tuple[Path, Chunks]]) -> None:
    """Writes several files; none is replaced before all are on the disk."""
    with _staged(files) as staged:
        for (path, _), one in zip(files, staged, strict=True):
            with _as_write_error(path):
                one.commit()


def write_pair(
    path: Path, naming: Callable[[str], Chunks], second: Path, chunks: Callable[[], Chunks]
) -> None:
    """
    Writes a file that refers to another file next to it; the pair is consistent at any moment.

    If both exist, the first refers to a copy of the second until that one is replaced.
    """
    if not (path.exists() and second.exists()):
        write_files([(second, chunks()), (path, naming(second.name))])
        return
    spare = second.with_name(f"{second.stem}.{os.urandom(4).hex()}{second.suffix}")
    steps = [(path, naming(spare.name)), (second, chunks()), (path, naming(second.name))]
    with _staged(steps) as staged, _as_write_error(spare):
        _copy(staged[1], spare, chunks)
        for one in staged:
            one.commit()
        spare.unlink()


def append_to(path: Path, content: bytes) -> None:
    """
    Appends data to a file that may be too large to rewrite; all of it or nothing.

    Pipes and other special files, which cannot be truncated, may receive a part.
    """
    # A buffer would write its rest again when the file is closed, after the truncation.
    with _as_write_error(path), open(path, "ab", buffering=0) as file:
        size = None if is_written_in_place(path) else file.tell()
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            if size is not None:
                os.truncate(path, size)
            raise


def write_atomically(
    path: Path, chunks: Chunks, *, mode: int = 0o666, durable: bool = False
) -> None:
    """
    Writes an internal file atomically; OSError if it fails.

    Unless `durable`, the data are not synced to the disk, so a power loss may lose them.
    """
    staged = stage(path, chunks, durable=durable, mode=mode)
    try:
        staged.commit()
    finally:
        staged.drop()


@contextmanager
def _as_write_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if not path.parent.is_dir():
            why = f"there is no folder {str(path.parent)!r}"
        elif path.is_dir():
            why = "it is a folder"
        hints = ["free some space, or choose another disk"] if error.errno in NO_ROOM else []
        hints += ["the previous content is unchanged"] if path.is_file() else []
        raise WriteError(
            f"the file cannot be written: {why}", str(path), "; ".join(hints)
        ) from error


@contextmanager
def _staged(files: Sequence[tuple[Path, Chunks]]) -> Iterator[list[Staged]]:
    """Writes the contents to temporary files next to their targets."""
    staged: list[Staged] = []
    try:
        for path, chunks in files:
            with _as_write_error(path):
                staged.append(stage(path, chunks, durable=True))
        yield staged
    finally:
        for one in staged:
            one.drop()


def _copy(staged: Staged, path: Path, chunks: Callable[[], Chunks]) -> None:
    """Copies a staged file to another name, by a hard link if possible."""
    try:
        os.link(staged.temporary or staged.target, path)
        _sync_folder(path.parent)
    except OSError:
        write_atomically(path, chunks(), durable=True)


@dataclass
class Staged:
    """Content that waits to replace a file."""

    target: Path
    """The target file, with links resolved."""
    temporary: Path | None
    """The temporary file next to the target; None once it has replaced the target."""
    durable: bool
    lock: int = -1
    """A locked descriptor while the temporary file has an owner: see `remove_orphans`."""

    def commit(self) -> None:
        if self.temporary is None:
            return
        if WINDOWS:  # It renames no open file; `_remove_orphan` leaves closed ones for a day.
            self._unlock()
        self.temporary.replace(self.target)
        self._unlock()
        self.temporary = None
        if self.durable:
            _sync_folder(self.target.parent)

    def drop(self) -> None:
        """Removes the temporary file, if it has not replaced the target."""
        if self.temporary is not None:
            self._unlock()
            with suppress(OSError):
                self.temporary.unlink()
            self.temporary = None

    def _unlock(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def stage(path: Path, chunks: Chunks, *, durable: bool, mode: int | None = None) -> Staged:
    """Writes content to a temporary file, or directly into a special file."""
    if "\0" in str(path):
        raise OSError(EINVAL, "a file name cannot contain a NUL", str(path))
    if is_written_in_place(path):
        with open(path, "wb") as file:
            file.writelines(chunks)
        return Staged(path, None, durable)
    target = Path(os.path.realpath(path))
    before = target.stat() if mode is None and target.exists() else None
    if before is not None and not os.access(target, os.W_OK):
        raise PermissionError(EACCES, "the file is write-protected", str(path))
    if durable:
        remove_orphans_of(target)
    if mode is None:
        mode = 0o666 if before is None else 0o600
    temporary, descriptor = _new_temporary(target, mode)
    # The lock belongs to the open file description, until its last descriptor is closed.
    staged = Staged(target, temporary, durable, os.dup(descriptor))
    try:
        with open(descriptor, "wb") as file:
            file.writelines(chunks)
            file.flush()
            if before is not None:
                _copy_owner_and_mode(descriptor, before)
            if durable:
                os.fsync(descriptor)
    except BaseException:
        staged.drop()
        raise
    return staged


def _new_temporary(target: Path, mode: int) -> tuple[Path, int]:
    """Creates a locked temporary file next to another file."""
    while True:
        temporary = target.with_name(f".{_key(target)}.{_kernel()}.{os.urandom(8).hex()}.part")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, mode)
        with suppress(OSError):  # Without file locks, no other process can lock it either.
            file_locks.lock(descriptor)
            if not temporary.exists():  # Removed as an orphan before it was locked.
                os.close(descriptor)
                continue
        return temporary, descriptor


def _key(target: Path) -> str:
    """
    A short prefix shared by the temporary files of a file, whose name may be too long to extend.
    """
    return f"{crc32(os.fsencode(target.name)):08x}"


@cache
def _kernel() -> str:
    """Identifies the running kernel: its processes share locks, even in containers."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        name = platform.node().encode()
    return f"{crc32(name):08x}"


def remove_orphans_of(path: Path) -> None:
    """Removes temporary files that killed processes left for this file."""
    target = Path(os.path.realpath(path))
    _remove_orphans(target.parent, _key(target))


def remove_orphans(folder: Path) -> None:
    """Removes temporary files that killed processes left in a folder."""
    _remove_orphans(folder, "*")


def _remove_orphans(folder: Path, key: str) -> None:
    with suppress(OSError):
        for temporary in folder.glob(f".{key}.*.*.part"):
            with suppress(OSError):
                _remove_orphan(temporary)


def _remove_orphan(temporary: Path) -> None:
    """
    Removes a temporary file without a writer: the kernel releases locks of dead processes.

    On a shared folder, locks of other machines may be invisible, so their files must also be old.
    """
    if WINDOWS:  # The file is locked while it is open; then it awaits its rename.
        if time.time() - temporary.stat().st_mtime > ORPHAN_SECONDS:
            temporary.unlink()
        return
    descriptor = os.open(temporary, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        file_locks.lock(descriptor)
        is_ours = temporary.name.split(".")[2] == _kernel()
        if is_ours or time.time() - os.fstat(descriptor).st_mtime > ORPHAN_SECONDS:
            temporary.unlink()
    finally:
        os.close(descriptor)


def is_written_in_place(path: Path) -> bool:
    """Whether the path is, or would be, something else than a regular file."""
    if os.path.abspath(path).startswith(OPEN_FILES):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _copy_owner_and_mode(descriptor: int, before: os.stat_result) -> None:
    """Copies owner and mode of the replaced file; on Windows, the folder determines them."""
    if WINDOWS:
        return
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        for owner, group in ((-1, before.st_gid), (before.st_uid, -1)):
            with suppress(PermissionError):
                os.fchown(descriptor, owner, group)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _sync_folder(folder: Path) -> None:
    """Syncs the folder, so that a replacement is durable; some file systems do not support it."""
    if WINDOWS:
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_writable(path: Path) -> bool:
    """Whether permissions allow `write_file` to write this file."""
    if is_written_in_place(path):
        return os.access(path, os.W_OK)
    target = Path(os.path.realpath(path))
    return os.access(target.parent, os.W_OK) and (not target.exists() or os.access(target, os.W_OK))
