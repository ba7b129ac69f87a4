"""Builds shared libraries: compiles translation units in parallel, links and caches."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from errno import EFBIG
from itertools import count
from pathlib import Path

from popgraph.backends.c.build.objects import Objects
from popgraph.backends.c.build.system import HERE as SYSTEM
from popgraph.backends.c.build.toolchain import (
    FLAGS,
    Compiler,
    Probe,
    build_key,
    library_folders,
    library_or_compiler,
    link_flags,
    unit_flags,
)
from popgraph.backends.c.cache.folder import give_up, readable_caches
from popgraph.backends.c.print.unit import HERE, Unit, kernel_unit, merge_short, split
from popgraph.support.cache_files import digest, is_sealed, write_sealed
from popgraph.support.errors import BackendError
from popgraph.support.progress import report, reporting
from popgraph.support.trust import make_private, open_trusted
from popgraph.support.writing import NO_ROOM, write_atomically


def library(
    units: Sequence[Unit],
    more: Sequence[str] = (),
    meanwhile: Callable[[], object] = lambda: None,
) -> Path:
    """
    The shared library of these translation units, compiled unless it is cached.

    `more` are flags appended to the usual ones. `meanwhile` is called while all cores compile.

    Libraries are cached per compiler. If no compiler works, the library of another compiler for
    the same text and machine is used. If the cache cannot be written, a temporary one replaces it.
    """
    key = library_key(units, more)
    found = library_or_compiler(library_folders(key))
    if isinstance(found, Path):
        return found
    try:
        return _build(*found, units, library_folders(key)[-1], more, meanwhile)
    except OSError as error:
        give_up(error.strerror or str(error))
    try:
        return _build(*found, units, library_folders(key)[-1], more, meanwhile)
    except OSError as error:
        raise BackendError(
            f"there is no place for compiled code: {error.strerror or error}",
            str(error.filename or ""),
            "free some space there, or set other folders: POPGRAPH_CACHE_DIR, TMPDIR",
        ) from error


def library_key(units: Sequence[Unit], more: Sequence[str] = ()) -> str:
    """The key of a library, without the compiler's identity."""
    return digest(build_key(), *more, *(unit.text for unit in units))


def _build(
    compiler: Compiler,
    found: Probe,
    units: Sequence[Unit],
    place: Path,
    more: Sequence[str],
    meanwhile: Callable[[], object],
) -> Path:
    """
    Compiles the units on all cores, links them, and stores the result.

    Kernels that other programs share are taken from the object cache, except short ones, which
    compile faster than a unit of their own. OSError if a disk is full.
    """
    make_private(place)
    kept = Objects(readable_caches(), digest(build_key(), *more, compiler.identity))
    programs = [unit for unit in units if not unit.kernels]
    lacking, known = kept.lacking(kernel for unit in units for _, kernel in unit.kernels)
    workers = os.cpu_count() or 1
    groups = split(lacking, workers, sum(len(unit.text) for unit in programs))
    separate = [*map(kernel_unit, groups), *programs]
    missing = merge_short(separate)
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        flags = [*found.flags, *FLAGS, *more, f"-I{HERE}"]
        started = count(1)

        def start() -> None:
            """Calls `meanwhile` once all workers wait; later, nothing would run meanwhile."""
            if next(started) == min(workers, len(missing)):
                meanwhile()

        def compile_unit(number: int) -> Path:
            source, target = folder / f"unit_{number}.c", folder / f"unit_{number}.o"
            write_atomically(source, [missing[number].text.encode()])
            own = unit_flags(SYSTEM, missing[number].text)
            command = [*flags, *own, "-c", str(source), "-o", str(target)]
            result = compiler.run(command, meanwhile=start)
            if not result.good:
                _check_room(result.reason, target)
                raise _refused(compiler, missing[number], result.reason)
            return target

        def keep() -> None:
            """Stores new objects: 0.2 ms for each kernel, in which a core would wait."""
            for unit, path in zip(missing, made, strict=True) if missing is separate else ():
                kept.keep(unit, path)
            kept.trim()

        with ThreadPoolExecutor(workers) as pool:
            objects_made = pool.map(compile_unit, range(len(missing)))
            made = list(_with_progress(objects_made, len(missing), compiler))
        objects = [*map(str, made), *map(str, known)]
        linked = folder / f"library{SYSTEM.suffix}"
        with reporting(f"C, linking, by {compiler.title}"):
            options = [*link_flags(SYSTEM), *_listed(objects, folder), *SYSTEM.libraries]
            command = [*found.flags, *options, "-o", str(linked)]
            result = compiler.run(command, meanwhile=keep)
        if not result.good:
            _check_room(result.reason, linked)
        if not result.good and known:
            kept.remove(known)
            return _build(compiler, found, units, place, more, meanwhile)
        if not result.good:
            raise BackendError(f"{compiler.name} could not link: {_first_errors(result.reason)}")
        final = place / f"{compiler.identity}{SYSTEM.suffix}"
        try:
            write_sealed(final, linked.read_bytes())
        except PermissionError:
            # On Windows, a library that another process has built meanwhile, and runs, stays.
            if not is_sealed(final):
                raise
        with open_trusted(final):
            return final


LONGEST_COMMAND = 30_000
"""Characters of arguments; Windows allows 32,767 for a command."""


def _listed(objects: Sequence[str], folder: Path) -> Sequence[str]:
    """Arguments that name these files, in a file of arguments if there are many."""
    if sum(len(name) + 3 for name in objects) < LONGEST_COMMAND:
        return objects
    listed = "".join(f'"{Path(name).as_posix()}"\n' for name in objects)
    write_atomically(folder / "objects.txt", [listed.encode()])
    return [f"@{folder / 'objects.txt'}"]


def _with_progress(done: Iterable[Path], units: int, compiler: Compiler) -> Iterator[Path]:
    """Object files as they are completed, reported as progress."""
    by = f"parts, by {compiler.title}"
    try:
        report(f"C, 0 of {units} {by}")
        for number, path in enumerate(done, 1):
            report(f"C, {number} of {units} {by}")
            yield path
    finally:
        report("")


def _words_of_signal(name: str, otherwise: str) -> str:
    """The system's message for a signal, which Windows may not have."""
    number = getattr(signal, name, None)
    return (number and signal.strsignal(number)) or otherwise


_NO_ROOM = {
    **{os.strerror(number): number for number in NO_ROOM},
    _words_of_signal("SIGXFSZ", "file size limit"): EFBIG,
}
"""The system's messages for a full disk or quota, in a compiler's output, with their errno."""


def _check_room(reason: str, path: Path) -> None:
    """Raises OSError if a compiler failed because a disk is full."""
    for words, number in _NO_ROOM.items():
        if words in reason:
            raise OSError(number, words, str(path.parent))


def _refused(compiler: Compiler, unit: Unit, reason: str) -> BackendError:
    """The error for C that a compiler rejects, with the kernel and its origin."""
    line = re.search(r"\.c:(\d+):(?:\d+:)? *(?:fatal )?error", reason)
    kernel = unit.kernel_at(int(line[1])) if line else None
    where = ""
    if kernel is not None:
        where = f"kernel {kernel.name}" + (f", from {kernel.location}" if kernel.location else "")
    return BackendError(
        f"{compiler.name} rejected the generated C:\n{_first_errors(reason)}",
        where,
        "this is a bug in PopGraph; another compiler (set CC) may accept it",
    )


def _first_errors(reason: str) -> str:
    lines = [line for line in reason.splitlines() if "error" in line] or reason.splitlines()
    return "\n".join(lines[:3])
