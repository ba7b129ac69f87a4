"""The toolchain: finds and probes C compilers, chooses flags, looks up built libraries."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from popgraph.backends.c.build.compiler_files import identity
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.machine.key import machine
from popgraph.backends.c.machine.targets import NATIVE, target_key, target_named, wanted_target
from popgraph.backends.c.print.unit import EXCHANGE, POOL, headers
from popgraph.support.cache_files import digest, is_sealed
from popgraph.support.errors import BackendError

FLAGS = (
    *("-std=gnu11", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden", "-Wno-psabi"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing"),
)
"""
Fast where IEEE arithmetic allows it: NaN, infinity and signed zero keep their meaning. By gnu11,
which is C11 here, f32 is computed in f32 on machines where plain C11 would have f64 for it.
"""

ZIG = "ziglang"
"""The package of PyPI that brings a C compiler."""

SOON = ("-O1",)
"""Behind the others: what takes a compiler half the time; vectors are written out in C."""

LINK_FLAGS = ["-shared", "-pthread", "-O2"]
"""zig builds its run-time library by the level: 5 s of CPU in the first link, 22 s without one."""
LIBRARIES = ["-lm"]

WIDE = {
    "__AVX512F__": "-mprefer-vector-width=512",
    "__AVX__": "-mprefer-vector-width=256",
}
"""
By the first macro that a compiler has: loops over the lanes of a vector use all of it. Clang cuts
64-byte vectors in two, and spills them, unless it is told not to; GCC computes 32-byte ones in
halves for some machines, which wait for one another in memory.
"""

GCC_FLAGS = (
    *("-fno-tree-pre", "-fno-predictive-commoning", "--param=avoid-fma-max-bits=0"),
    "-fno-thread-jumps",
)
"""
Where a loop slides over its input, GCC would keep this turn's values for the next turn: in
registers that micro-kernels need for sums. A convolution ran 1.4 times as long. For some machines,
Zen 2 and later among them, it would not fuse products with sums that wait for each other, as those
of a depthwise window do: networks of such windows ran 1.01 to 1.03 times as long. Where a function
chooses several times, as the logarithm does at its ends, it would make paths of the choices before
lanes become vectors, which then make masks of masks: 1.4 times as long.
"""


@dataclass(frozen=True)
class Compiler:
    """A command that may be a C compiler; nothing has been run yet."""

    command: tuple[str, ...]
    identity: str
    """Changes when the compiler is another file, or the file another version."""
    target: str = NATIVE
    """A name that `target_named` knows."""

    @property
    def name(self) -> str:
        return shlex.join(self.command)

    @property
    def title(self) -> str:
        """Its name for a person who waits."""
        if ZIG in self.command:
            return "zig, which builds its run-time library the first time"
        return os.path.basename(self.command[0])

    def run(self, arguments: Sequence[str], text: str | None = None) -> Result:
        """Runs it; a command that cannot be run at all is a failure like any other."""
        try:
            done = subprocess.run(
                [*self.command, *arguments],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            return Result(False, "", error.strerror or str(error))
        reason = done.stderr.strip() or f"it ended with status {done.returncode}"
        return Result(done.returncode == 0, done.stdout, reason)


@dataclass(frozen=True)
class Result:
    """How a compiler's run ended."""

    good: bool
    output: str
    reason: str


def candidates() -> Iterator[Compiler]:
    """The compilers to try: `$CC` alone when it is set, else the usual names, else zig's."""
    target = wanted_target()
    chosen = os.environ.get("CC", "").strip()
    commands = [tuple(shlex.split(chosen))] if chosen else [("cc",), ("gcc",), ("clang",)]
    for command in commands:
        if chosen or shutil.which(command[0]):
            yield Compiler(command, identity(command), target)
    if not chosen and importlib.util.find_spec(ZIG) is not None:
        command = (sys.executable, "-m", ZIG, "cc")
        yield Compiler(command, identity(command), target)


@dataclass(frozen=True)
class Probe:
    """What a compiler said when it was asked: does it work, and for which machine?"""

    reason: str
    """Empty when it works."""
    flags: tuple[str, ...] = ()
    macros: str = ""


@functools.cache
def probe(compiler: Compiler) -> Probe:
    """Asks a compiler for its predefined macros; for this very machine only if it can."""
    reason = ""
    known = target_named(compiler.target)
    assert known is not None, "wanted_target has looked it up"
    macro, spellings = known
    for spelling in spellings:
        flags = tuple(shlex.split(spelling))
        result = compiler.run([*flags, "-dM", "-E", "-x", "c", "-"], "")
        if result.good and macro not in result.output:
            reason = reason or f"it does not make code for {compiler.target}"
        elif result.good:
            wide = next(((flag,) for macro, flag in WIDE.items() if macro in result.output), ())
            own = () if "__clang__" in result.output else GCC_FLAGS
            return Probe("", flags + wide + own, result.output)
        reason = reason or result.reason
    return Probe(reason)


def build_command() -> list[str]:
    """
    The command by which code is compiled here: the compiler that works, and all flags.

    For another machine than this one it may be that none works here: then the usual one's name.
    """
    for compiler in candidates():
        found = probe(compiler)
        if not found.reason:
            return [*compiler.command, *found.flags, *FLAGS]
    known = target_named(wanted_target())
    assert known is not None, "wanted_target has looked it up"
    _, (spelling, *_) = known
    return ["cc", *shlex.split(spelling), *FLAGS]


def find_library(key: str) -> Path | None:
    """The library of this key, if nothing has to be compiled for it."""
    try:
        found = library_or_compiler(library_folders(key))
    except BackendError:
        return None
    return found if isinstance(found, Path) else None


def build_key() -> str:
    """What compiled code depends on, but for its text and the compiler."""
    flags = " ".join([*FLAGS, *GCC_FLAGS, *WIDE.values(), target_key()])
    return digest(machine(), flags, *headers(POOL, EXCHANGE).values())


def library_folders(key: str) -> list[Path]:
    """Where the library of this key may be; a new one belongs into the last."""
    return [cache / "kernels" / key[:2] / key for cache in readable_caches()]


def library_or_compiler(places: Sequence[Path]) -> Path | tuple[Compiler, Probe]:
    """A library in one of these places, or the compiler that has to make it."""
    tried = []
    for compiler in candidates():
        for place in places:
            if is_sealed(place / f"{compiler.identity}.so"):
                return place / f"{compiler.identity}.so"
        found = probe(compiler)
        if not found.reason:
            return compiler, found
        tried.append(f"{compiler.name} ({found.reason.splitlines()[0]})")
    for place in places:
        for file in filter(is_sealed, sorted(place.glob("*.so"))):
            return file
    raise no_compiler(tried)


def no_compiler(tried: Sequence[str]) -> BackendError:
    listed = ", ".join(tried) or "cc, gcc, clang"
    return BackendError(
        f"no C compiler works; tried {listed}",
        hint="install gcc or clang, or `pip install ziglang`, or set CC to a compiler",
    )
