"""The toolchain: finds and probes C compilers, chooses flags, looks up built libraries."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from popgraph.backends.c.build.system import HERE as SYSTEM
from popgraph.backends.c.build.system import MINGW_FLAGS, WINDOWS, System
from popgraph.backends.c.cache.folder import readable_caches
from popgraph.backends.c.machine.key import machine
from popgraph.backends.c.machine.targets import NATIVE, target_key, target_named, wanted_target
from popgraph.backends.c.print.unit import EXCHANGE, POOL, PORTABLE, headers
from popgraph.support.cache_files import digest, is_sealed
from popgraph.support.errors import BackendError

FUSES, UNFUSED = "-ffp-contract=fast", "-ffp-contract=off"
"""Whether compilers may fuse products and sums; in portable units they must not."""


def compile_flags(system: System) -> tuple[str, ...]:
    """The flags for code in a shared library of a system, for any machine."""
    return (
        *("-std=gnu11", "-O2", *system.compile, *system.threads),
        *("-fvisibility=hidden", "-Wno-psabi", FUSES, "-fno-math-errno"),
        *("-fno-trapping-math", "-fno-strict-aliasing"),
    )


def link_flags(system: System) -> tuple[str, ...]:
    """The flags that link a shared library of a system."""
    # -O2 is for zig, which builds its run-time library: 5 s of CPU in the first link, not 22 s.
    return ("-shared", *system.threads, "-O2")


def unit_flags(system: System, text: str) -> tuple[str, ...]:
    """The flags for one translation unit: on Windows, it has a symbol of its own (`runtime.h`)."""
    # Clang fuses in spite of `#pragma clang fp contract(off)` if -ffp-contract=fast was given.
    fused = (UNFUSED,) if text.startswith(f"#define {PORTABLE}\n") else ()
    own = (f"-DPOPGRAPH_UNIT=popgraph_unit_{digest(text)[:16]}",) if system is WINDOWS else ()
    return (*fused, *own)


FLAGS = compile_flags(SYSTEM)
"""
Fast math within IEEE: NaN, infinity and signed zero keep their meaning. gnu11 instead of c11:
f32 stays f32 on machines where strict C11 evaluates it in f64. -O2: ResNet-50 takes 25.6 ms, as
with -O3, which compiles 6 to 9 % longer; 27.2 ms with -O1. That has other bits, as GCC fuses
products and sums only with -fexpensive-optimizations. With both flags, bits are those of -O2, and
GCC takes 10 to 20 % less time, but ResNet-50 takes 27.5 ms.
"""

ZIG = "ziglang"
"""The PyPI package that contains a C compiler."""

SOON = ("-O1",)
"""Appended flags that halve compile time; vectorization does not suffer, as C has vectors."""

WIDE = {
    "__AVX512F__": "-mprefer-vector-width=512",
    "__AVX__": "-mprefer-vector-width=256",
}
"""
By the first defined macro: makes loops over lanes use whole vectors. By default, clang splits
64-byte vectors in two, and spills them. For some machines, GCC computes 32-byte vectors in
halves, which wait for each other through memory.
"""

GCC_FLAGS = (
    *("-fno-tree-pre", "-fno-predictive-commoning", "--param=avoid-fma-max-bits=0"),
    "-fno-thread-jumps",
)
"""
tree-pre, predictive-commoning: in a loop that slides over its input, GCC keeps values for the next
iteration in registers that micro-kernels need for accumulators: a convolution took 1.4 times as
long. avoid-fma-max-bits: on Zen 2 and later, among others, GCC does not fuse multiply and add in
dependent chains, as in depthwise windows: such networks took 1.01 to 1.03 times as long.
thread-jumps: for a function with several selections, such as the logarithm at its ends, GCC creates
branches before lanes become vectors, which then need masks of masks: 1.4 times as long.
"""


@dataclass(frozen=True)
class Compiler:
    """A candidate command for a C compiler, not yet run."""

    command: tuple[str, ...]
    identity: str
    """A key that changes with the compiler's files."""
    target: str = NATIVE
    """A name that `target_named` knows."""

    @property
    def name(self) -> str:
        return shlex.join(self.command)

    @property
    def title(self) -> str:
        """The name for progress messages."""
        if ZIG in self.command:
            return "zig, which builds its run-time library the first time"
        return os.path.basename(self.command[0])

    def run(
        self,
        arguments: Sequence[str],
        text: str | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> Result:
        """
        Runs the compiler, and calls `meanwhile` once it has started.

        A command that cannot be run at all is a failed result, too.
        """
        try:
            process = subprocess.Popen(
                [*self.command, *arguments],
                stdin=None if text is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            return Result(False, "", error.strerror or str(error))
        with process:
            try:
                meanwhile()
                output, errors = process.communicate(text)
            except BaseException:
                process.kill()
                raise
        reason = errors.strip() or f"it ended with status {process.returncode}"
        return Result(process.returncode == 0, output, reason)


@dataclass(frozen=True)
class Result:
    """The result of running a compiler."""

    good: bool
    output: str
    reason: str


def candidates() -> Iterator[Compiler]:
    """
    The compilers to try: only `$CC` if it is set, else cc, gcc, clang, and zig.

    On Windows, zig is first: other compilers there may lack headers or libraries.
    """
    target, is_windows = wanted_target(), os.name == "nt"
    chosen = os.environ.get("CC", "").strip()
    if is_windows:  # A shell's splitting would remove the backslashes of paths.
        chosen = chosen.replace("\\", "/")
    if chosen:
        commands = [tuple(shlex.split(chosen))]
    else:
        commands = [(name,) for name in ("cc", "gcc", "clang") if shutil.which(name)]
        if importlib.util.find_spec(ZIG) is not None:
            zig = (sys.executable, "-m", ZIG, "cc")
            commands.insert(0 if is_windows else len(commands), zig)
    for command in commands:
        yield Compiler(command, identity(command), target)


@dataclass(frozen=True)
class Probe:
    """The result of probing a compiler: whether it works, its flags and its macros."""

    reason: str
    """The reason why it does not work; empty if it does."""
    flags: tuple[str, ...] = ()
    macros: str = ""


@functools.cache
def probe(compiler: Compiler) -> Probe:
    """Reads a compiler's predefined macros, with the first spelling of flags that it accepts."""
    reason = ""
    known = target_named(compiler.target)
    assert known is not None, "wanted_target has looked it up"
    macro, spellings = known
    for spelling in spellings:
        flags = tuple(shlex.split(spelling))
        result = compiler.run([*flags, "-dM", "-E", "-x", "c", "-"], "")
        if result.good and macro not in result.output:
            reason = reason or f"it does not compile for {compiler.target}"
        elif result.good:
            wide = next(((flag,) for macro, flag in WIDE.items() if macro in result.output), ())
            mingw = MINGW_FLAGS if "__MINGW32__" in result.output else ()
            own = () if "__clang__" in result.output else (*GCC_FLAGS, *mingw)
            return Probe("", flags + wide + own, result.output)
        reason = reason or result.reason
    return Probe(reason)


def build_command() -> list[str]:
    """
    The command that compiles code here: the first working compiler, and all flags.

    If none works, as may be for another machine's target, the command names `cc`.
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
    """The cached library of this key, if any."""
    try:
        found = library_or_compiler(library_folders(key))
    except BackendError:
        return None
    return found if isinstance(found, Path) else None


def build_key() -> str:
    """A key of all that compiled code depends on besides its text and the compiler."""
    flags = " ".join([*FLAGS, *GCC_FLAGS, *WIDE.values(), target_key()])
    return digest(machine(), flags, *headers(POOL, EXCHANGE).values())


def library_folders(key: str) -> list[Path]:
    """The folders that may contain the library of this key; new ones go into the last."""
    return [cache / "kernels" / key[:2] / key for cache in readable_caches()]


def library_or_compiler(places: Sequence[Path]) -> Path | tuple[Compiler, Probe]:
    """A library in one of these folders, or the compiler to build it with."""
    tried = []
    for compiler in candidates():
        for place in places:
            if is_sealed(place / f"{compiler.identity}{SYSTEM.suffix}"):
                return place / f"{compiler.identity}{SYSTEM.suffix}"
        found = probe(compiler)
        if not found.reason:
            return compiler, found
        tried.append(f"{compiler.name} ({found.reason.splitlines()[0]})")
    for place in places:
        for file in filter(is_sealed, sorted(place.glob(f"*{SYSTEM.suffix}"))):
            return file
    raise no_compiler(tried)


def no_compiler(tried: Sequence[str]) -> BackendError:
    listed = ", ".join(tried) or "cc, gcc, clang"
    return BackendError(
        f"no C compiler works; tried {listed}",
        hint="install gcc or clang, run `pip install ziglang`, or set CC to a compiler; the "
        "reference backend needs none",
    )


# The identity of a compiler, from the files that its command runs

WRAPPERS = ("ccache", "sccache", "distcc", "icecc")
"""Compiler wrappers, which run the next program of their own name on the path."""


def identity(command: Sequence[str]) -> str:
    """A key that changes with the command, and with the path, size or time of its files."""
    facts: list[object] = [tuple(command)]
    for file in _files(command):
        with suppress(OSError):
            state = file.stat()
            facts += [str(file), state.st_size, state.st_mtime_ns]
    return digest(repr(facts))[:16]


def _files(command: Sequence[str]) -> Iterator[Path]:
    """The files of a command: `ccache gcc` has two, `python -m ziglang cc` has the module's."""
    for before, word in zip(("", *command), command, strict=False):
        if before == "-m":
            yield from _of_module(word)
        elif not word.startswith("-"):
            yield from _of_program(word)


def _of_program(word: str) -> Iterator[Path]:
    """The program of a word, and the compiler that it calls if it is a wrapper."""
    found = shutil.which(word)
    if found is None:
        return
    first = Path(found).resolve()
    yield first
    if first.name not in WRAPPERS or Path(word).name in WRAPPERS:
        return
    others = (shutil.which(Path(word).name, path=folder) for folder in os.get_exec_path())
    yield from (Path(one).resolve() for one in others if one and Path(one).resolve() != first)


def _of_module(name: str) -> Iterator[Path]:
    """The first file of a Python module, and the programs in its folder."""
    with suppress(ImportError, ValueError, OSError):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin)
            beside = sorted(Path(spec.origin).parent.iterdir())
            yield from (one for one in beside if one.is_file() and os.access(one, os.X_OK))
