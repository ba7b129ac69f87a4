"""How does C become a library? Units are compiled at once, each kernel once, and linked."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from popgraph.backends.c.objects import Objects
from popgraph.backends.c.toolchain import (
    FLAGS,
    LIBRARIES,
    LINK_FLAGS,
    Compiler,
    Probe,
    circumstances,
    library_folders,
    library_or_compiler,
    readable_caches,
)
from popgraph.backends.c.unit import HERE, Unit
from popgraph.support.caches import digest, write_sealed
from popgraph.support.errors import BackendError
from popgraph.support.writing import put


def library(units: Sequence[Unit]) -> Path:
    """
    The shared library of these translation units, compiled unless it is in the cache.

    A compiler that works compiles what it has not compiled before. Where none works, what another
    compiler made of the same text for the same machine is as good.
    """
    folders = library_folders(library_key(units))
    found = library_or_compiler(folders)
    return found if isinstance(found, Path) else _build(*found, units, folders[-1])


def library_key(units: Sequence[Unit]) -> str:
    """What tells a library from all others, but for the compiler that makes it."""
    return digest(circumstances(), *(unit.text for unit in units))


def _build(compiler: Compiler, found: Probe, units: Sequence[Unit], place: Path) -> Path:
    """
    Compiles at once as many units as there are cores, links, and moves the result in place.

    Kernels that other programs have, too, were compiled for them.
    """
    place.mkdir(parents=True, exist_ok=True)
    kept = Objects(readable_caches(), digest(circumstances(), compiler.identity))
    missing, known = kept.lacking(units)
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        flags = [*found.flags, *FLAGS, f"-I{HERE}"]

        def compile_unit(number: int) -> Path:
            source, target = folder / f"unit_{number}.c", folder / f"unit_{number}.o"
            put(source, [missing[number].text.encode()])
            result = compiler.run([*flags, "-c", str(source), "-o", str(target)])
            if not result.good:
                raise _refused(compiler, missing[number], result.reason)
            kept.keep(missing[number], target)
            return target

        with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
            made = list(pool.map(compile_unit, range(len(missing))))
        kept.trim()
        objects = [*map(str, made), *map(str, known)]
        linked = folder / "library.so"
        result = compiler.run(
            [*found.flags, *LINK_FLAGS, *objects, *LIBRARIES, "-o", str(linked)],
        )
        if not result.good and known:
            kept.forget(known)
            return _build(compiler, found, units, place)
        if not result.good:
            raise BackendError(f"{compiler.name} could not link: {_first_errors(result.reason)}")
        final = place / f"{compiler.identity}.so"
        write_sealed(final, linked.read_bytes())
        return final


def _refused(compiler: Compiler, unit: Unit, reason: str) -> BackendError:
    """The error for C that a compiler does not accept: which kernel it was, and whose."""
    line = re.search(r"\.c:(\d+):(?:\d+:)? *(?:fatal )?error", reason)
    kernel = unit.kernel_at(int(line[1])) if line else None
    where = ""
    if kernel is not None:
        where = f"kernel {kernel.name}" + (f", from {kernel.location}" if kernel.location else "")
    return BackendError(
        f"{compiler.name} did not accept the generated C:\n{_first_errors(reason)}",
        where,
        "this is a mistake in PopGraph; another compiler (set CC) may accept it",
    )


def _first_errors(reason: str) -> str:
    lines = [line for line in reason.splitlines() if "error" in line] or reason.splitlines()
    return "\n".join(lines[:3])
